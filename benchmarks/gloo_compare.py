"""Time the gloo backend of rankwise beside torch's gloo and mpi4py, alternating, in one session.

    python benchmarks/gloo_compare.py --ranks 2 4 --json result.json

Every figure is the time of one call in a loop of back-to-back calls on fresh data, the mean over the loop on rank 0;
the table shows the median over the alternations, its spread, and how many times faster rankwise is.
A contender that is not installed is left out, and the table says so.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

OPS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "barrier")
SIZES = (8, 1 << 10, 16 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
NEEDS = {"rankwise": "rankwise_gloo_tcp", "torch": "torch", "mpi": "mpi4py"}
#: More bytes than the cache holds; a call never finds its array there from the call before.
ROTATE_NBYTES = 64 << 20
#: How often calls up to a size are made before they are timed: until then ranks learn how they wait for each other.
_SMALL_NBYTES, _WARM_UP = 64 << 10, 500
#: How often a call is timed at the most.
_MOST = 20000
#: From here on all_reduce is compared with one copy of the array.
_LARGE_NBYTES = 16 << 20

Call = Callable[[], object]


class Rankwise:
    """Calls of rankwise."""

    def __init__(self) -> None:
        import rankwise as dist

        dist.init_process_group("gloo")
        self.use(dist)
        self.array, self.barrier = lambda a: a, dist.barrier

    def use(self, dist: Any) -> None:
        """Take a module with the calls of torch.distributed."""
        self.dist, self.rank, self.size = dist, dist.get_rank(), dist.get_world_size()
        self.close = dist.destroy_process_group

    def prepare(self, op: str, a: Any, out: Any, part: Any) -> Call:
        """Return what makes one call, with nothing around it that would be timed too."""
        dist = self.dist
        calls: dict[str, Call] = {
            "all_reduce": partial(dist.all_reduce, a),
            "broadcast": partial(dist.broadcast, a, 0),
            "all_gather": partial(dist.all_gather_into_tensor, out, part),
            "reduce_scatter": partial(dist.reduce_scatter_tensor, part, a),
            "all_to_all": partial(dist.all_to_all_single, out, a),
            "send_recv": there_and_back(self.rank, partial(dist.send, a), partial(dist.recv, a)),
            "barrier": dist.barrier,
        }
        return calls[op]


def there_and_back(rank: int, send: Callable[[int], object], receive: Callable[[int], object]) -> Call:
    """Return a rank's part of a message from rank 0 to rank 1 and back."""

    def first() -> None:
        send(1)
        receive(1)

    def second() -> None:
        receive(0)
        send(0)

    return {0: first, 1: second}.get(rank, _nothing)


def _nothing() -> None:
    pass


class Torch(Rankwise):
    """The same calls of torch."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.use(dist)
        self.array, self.barrier = torch.from_numpy, dist.barrier


class Mpi:
    """The same calls of mpi4py."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.mpi, self.comm = MPI, MPI.COMM_WORLD
        self.rank, self.size = self.comm.rank, self.comm.size
        self.array, self.barrier, self.close = (lambda a: a), self.comm.Barrier, lambda: None

    def prepare(self, op: str, a: Any, out: Any, part: Any) -> Call:
        comm = self.comm
        calls: dict[str, Call] = {
            "all_reduce": partial(comm.Allreduce, self.mpi.IN_PLACE, a),
            "broadcast": partial(comm.Bcast, a, 0),
            "all_gather": partial(comm.Allgather, part, out),
            "reduce_scatter": partial(comm.Reduce_scatter_block, a, part),
            "all_to_all": partial(comm.Alltoall, a, out),
            "send_recv": there_and_back(self.rank, partial(comm.Send, a), partial(comm.Recv, a)),
            "barrier": comm.Barrier,
        }
        return calls[op]


class Copy:
    """The floor: one process copies the array once."""

    def __init__(self) -> None:
        self.rank, self.size = 0, 1
        self.array, self.barrier, self.close = (lambda a: a), lambda: None, lambda: None

    def prepare(self, op: str, a: Any, out: Any, part: Any) -> Call:
        return partial(np.copyto, out, a)


CONTENDERS: dict[str, Any] = {"rankwise": Rankwise, "torch": Torch, "mpi": Mpi}


def work(contender: str, ops: list[str], sizes: list[int], budget_s: float) -> None:
    """Be one rank: time everything, and let rank 0 print it as JSON."""
    us = Copy() if contender == "copy" else CONTENDERS[contender]()
    found = {}
    for op in ops:
        for nbytes in [0] if op == "barrier" else sizes:
            found[f"{op}/{nbytes}"] = _time(us, op, nbytes, budget_s)
    us.barrier()
    if us.rank == 0:
        print(json.dumps(found), flush=True)
    us.close()


def _make(calls: list[Call], count: int) -> None:
    """Make so many calls, one kind after the other."""
    for call in itertools.islice(itertools.cycle(calls), count):
        call()


def _time(us: Any, op: str, nbytes: int, budget_s: float) -> float:
    """Return the seconds of one call; a message is half of a round trip."""
    count = -(-max(nbytes // 4, 1) // us.size) * us.size
    rounds = max(2, min(64, ROTATE_NBYTES // max(4 * count, 1)))

    def fresh(size: int) -> Any:
        array = np.empty(size, np.float32)
        array.fill(0)  # `zeros` would leave the pages to be made by the first call
        return us.array(array)

    calls = [us.prepare(op, fresh(count), fresh(count), fresh(count // us.size)) for _ in range(rounds)]
    _make(calls, _WARM_UP if nbytes <= _SMALL_NBYTES else 3)
    repeat = np.zeros(1)
    start = time.perf_counter()
    calls[0]()
    repeat[0] = max(3, min(_MOST, budget_s / max(time.perf_counter() - start, 1e-6)))
    shared = us.array(repeat)
    us.prepare("broadcast", shared, shared, shared)()
    us.barrier()
    start = time.perf_counter()
    _make(calls, int(repeat[0]))
    took = (time.perf_counter() - start) / int(repeat[0])
    us.barrier()
    return took / 2 if op == "send_recv" else took


def launch(contender: str, ranks: int, arguments: list[str]) -> dict[str, float]:
    """Run all ranks of a contender, and return what rank 0 has found."""
    command = [sys.executable, __file__, "--work", contender, *arguments]
    if contender == "mpi":
        command = [*_mpiexec(), "-n", str(ranks), *command]
        output = subprocess.run(command, stdout=-1, text=True, check=True, timeout=900).stdout
        return dict(json.loads(output.splitlines()[-1]))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {**os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(command, env={**env, "RANK": str(rank)}, stdout=-1 if rank == 0 else None, text=True)
        for rank in range(ranks)
    ]
    output, _ = processes[0].communicate(timeout=900)
    for process in processes[1:]:
        process.wait(60)
    return dict(json.loads(output.splitlines()[-1]))


def _mpiexec() -> list[str]:
    """Return how to start MPI's processes: Open MPI alone has to be told that they may be many, and the superuser's."""
    told = subprocess.run(["mpiexec", "--version"], stdout=-1, text=True, check=True).stdout
    return ["mpiexec"] if "HYDRA" in told else ["mpiexec", "--oversubscribe", "--allow-run-as-root"]


def table(results: dict[str, list[dict[str, float]]]) -> str:
    """Return the figures in microseconds, and the ratios of their medians, as a Markdown table."""
    others = [name for name in results if name != "rankwise"]
    head = ["call", "bytes", "rankwise (us)", *(f"{name} (us), ratio" for name in others)]
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    for key in results["rankwise"][0]:
        op, nbytes = key.split("/")
        times = {name: [run[key] * 1e6 for run in runs] for name, runs in results.items()}
        own = statistics.median(times["rankwise"])
        cells = [op, nbytes, f"{own:.1f} ({min(times['rankwise']):.1f}-{max(times['rankwise']):.1f})"]
        cells += [f"{statistics.median(times[n]):.1f}, {statistics.median(times[n]) / own:.1f}x" for n in others]
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines)


def means(results: dict[str, list[dict[str, float]]], largest: int = 16 << 20) -> str:
    """Return for each operation how many times faster rankwise is: the geometric mean over sizes, and the least."""
    lines = []
    for name in [name for name in results if name != "rankwise"]:
        ratios: dict[str, list[float]] = defaultdict(list)
        for key in results["rankwise"][0]:
            op, nbytes = key.split("/")
            if int(nbytes) <= largest:
                own, other = (statistics.median(run[key] for run in results[who]) for who in ("rankwise", name))
                ratios[op].append(other / own)
        lines += [
            f"{op}: {statistics.geometric_mean(found):.1f}x {name} on average, {min(found):.1f}x at the least"
            for op, found in ratios.items()
        ]
    return "\n".join(lines)


def floor(results: dict[str, list[dict[str, float]]], copies: list[dict[str, float]]) -> str:
    """Return how all_reduce of large arrays compares with one copy of the array."""
    lines = []
    for key in copies[0]:
        own, copy = (statistics.median(run[key] for run in runs) * 1e6 for runs in (results["rankwise"], copies))
        lines.append(f"{key}: {own:.0f} us, {own / copy:.2f} x np.copyto ({copy:.0f} us)")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--ops", nargs="+", default=list(OPS), choices=OPS)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="bytes of the whole array")
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--budget", type=float, default=0.1, help="seconds for each figure of each alternation")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work, given.ops, given.sizes, given.budget)
        return
    missing = [name for name in given.contenders if find_spec(NEEDS[name]) is None]
    print(f"not installed, left out: {', '.join(missing)}" if missing else "", file=sys.stderr)
    passed = ["--ops", *given.ops, "--sizes", *map(str, given.sizes), "--budget", str(given.budget)]
    everything = {}
    for ranks in given.ranks:
        results: dict[str, list[dict[str, float]]] = defaultdict(list)
        copies: list[dict[str, float]] = []
        large = [str(size) for size in given.sizes if size >= _LARGE_NBYTES]
        for _ in range(given.alternations):
            if large and "all_reduce" in given.ops:
                copies.append(launch("copy", 1, ["--ops", "all_reduce", "--sizes", *large]))
            for name in given.contenders:
                if name not in missing:
                    results[name].append(launch(name, ranks, passed))
        everything[ranks] = results
        print(f"\n{ranks} ranks\n\n{table(results)}\n\n{means(results)}")
        if copies:
            print(f"\n{floor(results, copies)}")
    if given.json:
        facts = {"machine": list(os.uname()), "processors": os.cpu_count(), "results": everything}
        given.json.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
