"""The libraries that `rankwise bench` measures, each seen through the same few calls."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

#: How many bytes cross each rank's link for a byte of the array, at the least; n is the number of ranks.
_BUS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "gather": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
}


def bus_factor(op: str, size: int) -> float:
    """Return what turns bytes per second of the array into those of a link, as nccl-tests do."""
    return _BUS[op](size) if op in _BUS else 1.0


class Library(ABC):
    """A communication library under measurement; rank 0 is every root."""

    rank: int
    size: int

    @abstractmethod
    def prepare(self, op: str, count: int) -> Callable[[], object]:
        """Return a call that does the operation once, on `count` float32, a multiple of the number of ranks."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait for all ranks."""

    @abstractmethod
    def slowest(self, seconds: float) -> float:
        """Return the longest of all ranks' times."""

    @abstractmethod
    def close(self) -> None:
        """Leave."""

    def bounce(self, send: Callable[[int], object], recv: Callable[[int], object]) -> None:
        """Send a message from rank 0 to rank 1 and back; the others look on."""
        if self.rank == 0:
            send(1)
            recv(1)
        elif self.rank == 1:
            recv(0)
            send(0)


class Rankwise(Library):
    """This library, over one of its backends."""

    def __init__(self, backend: str) -> None:
        import rankwise

        self.dist = rankwise
        rankwise.init_process_group(backend, timeout=120.0)
        self.rank, self.size = rankwise.get_rank(), rankwise.get_world_size()
        self.xp: Any = importlib.import_module("cupy") if backend == "nccl" else np

    def prepare(self, op: str, count: int) -> Callable[[], object]:
        """Allocate arrays and bind them to the call."""
        dist, n = self.dist, self.size
        root = self.rank == 0

        def array(count: int) -> Any:
            # Zeros, so that repeated sums do not overflow; but written, so that there is memory behind them.
            return self.xp.full(count, 0, self.xp.float32)

        whole, part, other = array(count), array(count // n), array(count)
        parts = [array(count // n) for _ in range(n)] if op in ("gather", "scatter") else []
        calls: dict[str, Callable[[], object]] = {
            "all_reduce": lambda: dist.all_reduce(whole),
            "broadcast": lambda: dist.broadcast(whole, 0),
            "reduce": lambda: dist.reduce(whole, 0),
            "all_gather": lambda: dist.all_gather_single(whole, part),
            "reduce_scatter": lambda: dist.reduce_scatter_single(part, whole),
            "all_to_all": lambda: dist.all_to_all_single(other, whole),
            "gather": lambda: dist.gather(part, parts if root else None, 0),
            "scatter": lambda: dist.scatter(part, parts if root else None, 0),
            "barrier": lambda: dist.barrier(),
            "send_recv": lambda: self.bounce(lambda to: dist.send(whole, to), lambda src: dist.recv(whole, src)),
        }
        return self._synchronised(calls[op])

    def _synchronised(self, call: Callable[[], object]) -> Callable[[], object]:
        if self.xp is np:
            return call

        def call_and_wait() -> None:
            call()
            self.xp.cuda.get_current_stream().synchronize()

        return call_and_wait

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.dist.barrier()

    def slowest(self, seconds: float) -> float:
        """Return the longest of all ranks' times."""
        value = self.xp.full(1, seconds, self.xp.float64)
        self.dist.all_reduce(value, self.dist.ReduceOp.MAX)
        return float(value[0])

    def close(self) -> None:
        """Destroy the group."""
        self.dist.destroy_process_group()


class TorchGloo(Library):
    """torch.distributed over gloo, if torch is installed."""

    def __init__(self, backend: str) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.dist: Any = importlib.import_module("torch.distributed")
        self.dist.init_process_group("gloo")
        self.rank, self.size = self.dist.get_rank(), self.dist.get_world_size()

    def prepare(self, op: str, count: int) -> Callable[[], object]:
        """Allocate tensors and bind them to the call."""
        torch, dist, n, root = self.torch, self.dist, self.size, self.rank == 0
        whole, other, part = (torch.full((c,), 0.0) for c in (count, count, count // n))
        parts = [torch.full((count // n,), 0.0) for _ in range(n)]
        calls: dict[str, Callable[[], object]] = {
            "all_reduce": lambda: dist.all_reduce(whole),
            "broadcast": lambda: dist.broadcast(whole, 0),
            "reduce": lambda: dist.reduce(whole, 0),
            "all_gather": lambda: dist.all_gather(parts, part),
            "reduce_scatter": lambda: dist.reduce_scatter(part, parts),
            "all_to_all": lambda: dist.all_to_all_single(other, whole),
            "gather": lambda: dist.gather(part, parts if root else None, 0),
            "scatter": lambda: dist.scatter(part, parts if root else None, 0),
            "barrier": lambda: dist.barrier(),
            "send_recv": lambda: self.bounce(lambda to: dist.send(whole, to), lambda src: dist.recv(whole, src)),
        }
        return calls[op]

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.dist.barrier()

    def slowest(self, seconds: float) -> float:
        """Return the longest of all ranks' times."""
        value = self.torch.full((1,), seconds, dtype=self.torch.float64)
        self.dist.all_reduce(value, self.dist.ReduceOp.MAX)
        return float(value[0])

    def close(self) -> None:
        """Destroy the group."""
        self.dist.destroy_process_group()


class Mpi4py(Library):
    """mpi4py's own buffer calls, started by mpiexec."""

    def __init__(self, backend: str) -> None:
        self.mpi: Any = importlib.import_module("mpi4py.MPI")
        self.world = self.mpi.COMM_WORLD
        self.rank, self.size = self.world.Get_rank(), self.world.Get_size()

    def prepare(self, op: str, count: int) -> Callable[[], object]:
        """Allocate arrays and bind them to the call."""
        world, n, root = self.world, self.size, self.rank == 0
        whole, part, parts, result = (np.full(c, 0, np.float32) for c in (count, count // n, count, count))
        calls: dict[str, Callable[[], object]] = {
            "all_reduce": lambda: world.Allreduce(self.mpi.IN_PLACE, whole),
            "broadcast": lambda: world.Bcast(whole, 0),
            "reduce": lambda: world.Reduce(whole, result if root else None, root=0),
            "all_gather": lambda: world.Allgather(part, parts),
            "reduce_scatter": lambda: world.Reduce_scatter_block(parts, part),
            "all_to_all": lambda: world.Alltoall(whole, parts),
            "gather": lambda: world.Gather(part, parts if root else None, 0),
            "scatter": lambda: world.Scatter(parts if root else None, part, 0),
            "barrier": lambda: world.Barrier(),
            "send_recv": lambda: self.bounce(lambda to: world.Send(whole, to), lambda src: world.Recv(whole, src)),
        }
        return calls[op]

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.world.Barrier()

    def slowest(self, seconds: float) -> float:
        """Return the longest of all ranks' times."""
        return float(self.world.allreduce(seconds, self.mpi.MAX))

    def close(self) -> None:
        """MPI ends with the process."""


LIBRARIES: dict[str, Callable[[str], Library]] = {
    "rankwise": Rankwise,
    "gloo-torch": TorchGloo,
    "mpi4py": Mpi4py,
}
