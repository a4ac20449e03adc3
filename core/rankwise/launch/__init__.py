"""`spawn`, which `rankwise-launch` brings, as it does `rankwise run`; here is what programs see of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from typing import Any

from rankwise.basics.entry_points import part
from rankwise.basics.tracebacks import shortened
from rankwise.errors import ProcessException, ProcessExitedException, ProcessRaisedException

__all__ = ["ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext", "spawn"]


class SpawnContext(ABC):
    """The processes that `spawn(join=False)` has started.

    Attributes:
        processes: The processes, by index.
    """

    processes: list[BaseProcess]

    @property
    def pids(self) -> list[int]:
        """The processes' ids."""
        return [int(process.pid or 0) for process in self.processes]

    @abstractmethod
    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until all have ended well, and return true; return false if the time is up before.

        Args:
            timeout: Seconds; None waits without end.
            grace_period: Seconds that the others get to end by themselves after a failure.

        Raises:
            ProcessException: One has failed; the others have been stopped.
        """


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
    preload: Sequence[str] = (),
) -> SpawnContext | None:
    """Call `fn(i, *args)` in `nprocs` new processes, `i` from 0; `torch.multiprocessing.spawn` without torch.

    Where the environment says nothing about a job (no RANK, WORLD_SIZE, MASTER_ADDR or MASTER_PORT), each process is
    given what `rankwise run` gives: RANK and LOCAL_RANK are `i`, the ranks meet at a free port, and they share a
    job secret that nobody else knows; so `fn` can call `init_process_group("gloo")` straight away.

    Args:
        fn: A function of a module that the new processes can import; in a notebook write one with `%%writefile`.
        args: Its further arguments; they are pickled.
        nprocs: Number of processes.
        join: Wait for all; otherwise a context to wait with is returned.
        daemon: End the processes when this one ends; they may then have no child processes.
        start_method: "spawn", "forkserver" or "fork" (not once there is a process group in this process).
        preload: Modules that the fork server imports once, before it forks the first process.

    Raises:
        ValueError: The function was typed into a notebook or a shell, or there is no fork server to preload.
        ProcessRaisedException: A process raised; the message holds its traceback, and the others have been stopped.
        ProcessExitedException: A process ended with another exit code than 0, or by a signal.
        PluginError: `rankwise-launch` is not installed.

    Returns:
        None, or without `join` a `SpawnContext`.

    Examples:
        >>> def train(rank, word):
        ...     dist.init_process_group("gloo")
        ...     dist.barrier()
        ...     dist.destroy_process_group()
        >>> if __name__ == "__main__":
        ...     dist.spawn(train, ("hello",), nprocs=2)
    """
    with shortened:
        started: SpawnContext = part("spawn", "rankwise-launch")(fn, args, nprocs, daemon, start_method, preload)
        if not join:
            return started
        started.join()
        return None
