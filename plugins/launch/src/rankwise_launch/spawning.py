"""The processes of `rankwise.spawn`: a function on several processes of this machine."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Literal, NamedTuple, overload

from rankwise.errors import ProcessException, ProcessExitedException, ProcessRaisedException
from rankwise.launching import keep_standard, shortened
from rankwise_launch.processes import MOST_PROCESSES, die_with_parent, hand_down, require_processes, too_many
from rankwise_network import secret
from rankwise_network.interface import at_free_port

#: A process that is told to end gets so long before it is killed.
_STOP_GRACE_S = 1.0
_JOB_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class _Member(NamedTuple):
    number: int
    process: BaseProcess
    #: What the process says about its failure comes here.
    report: connection.Connection


class SpawnContext:
    """The processes that `spawn(join=False)` has started.

    Attributes:
        processes: The processes, by index.
    """

    def __init__(self, members: list[_Member]) -> None:
        self._members = members
        self._running = {member.process.sentinel: member for member in members}
        self.processes = [member.process for member in members]

    def __repr__(self) -> str:
        return f"<SpawnContext: {len(self._running)} of {len(self._members)} processes have not been joined>"

    @property
    def pids(self) -> list[int]:
        """The processes' ids."""
        return [int(process.pid or 0) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until all have ended well, and return true; return false if the time is up before.

        Args:
            timeout: Seconds; None waits without end.
            grace_period: Seconds that the others get to end by themselves after a failure.

        Raises:
            ProcessException: One has failed; the others have been stopped.
        """
        with shortened:
            end = None if timeout is None else time.monotonic() + timeout
            while self._running:
                left = None if end is None else max(end - time.monotonic(), 0.0)
                ended = connection.wait(list(self._running), left)
                failed = [member for member in map(self._reap, ended) if member.process.exitcode]
                if failed:
                    self.stop(grace_period)
                    raise self._error(min(failed, key=lambda member: member.number))
                if not ended:
                    return False
            return True

    def stop(self, grace_period: float | None = None) -> None:
        """End those that run, after they have had some seconds to end by themselves."""
        if grace_period:
            connection.wait(list(self._running), grace_period)
        for member in self._running.values():
            member.process.terminate()
        end = time.monotonic() + _STOP_GRACE_S
        for member in self._running.values():
            member.process.join(max(end - time.monotonic(), 0.0))
            if member.process.exitcode is None:
                member.process.kill()
                member.process.join()
        self._running.clear()

    def _reap(self, sentinel: Any) -> _Member:
        member = self._running.pop(sentinel)
        member.process.join()
        return member

    def _error(self, member: _Member) -> ProcessException:
        index, process = member.number, member.process
        pid, code = process.pid or 0, process.exitcode or 0
        traceback = _received(member.report)
        if traceback is not None:
            return ProcessRaisedException(f"\n\n-- Process {index} failed with this error:\n{traceback}", index, pid)
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            return ProcessExitedException(f"process {index} was ended by {name}", index, pid, code, name)
        return ProcessExitedException(f"process {index} ended with exit code {code}", index, pid, code)


@overload
def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: Literal[True] = True,
    daemon: bool = False,
    start_method: str = "spawn",
    preload: Sequence[str] = (),
) -> None: ...


@overload
def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    *,
    join: Literal[False],
    daemon: bool = False,
    start_method: str = "spawn",
    preload: Sequence[str] = (),
) -> SpawnContext: ...


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
        started = _start_all(fn, args, nprocs, daemon, start_method, preload)
        if not join:
            return started
        started.join()
        return None


def _start_all(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    nprocs: int,
    daemon: bool,
    start_method: str,
    preload: Sequence[str],
) -> SpawnContext:
    """Call a function in new processes, and return what waits for them."""
    if nprocs < 1:
        raise ValueError(f"spawn: nprocs must be at least 1, not {nprocs}")
    if nprocs > MOST_PROCESSES:
        raise ValueError(f"spawn: {too_many('processes', nprocs)}")
    require_processes()
    _check_function(fn, start_method)
    keep_standard()
    context: Any = multiprocessing.get_context(start_method)
    if preload:
        _preload(context, start_method, preload)
    shared, job_secret = _job(nprocs)
    members: list[_Member] = []
    try:
        for index in range(nprocs):
            members.append(_start(context, index, fn, args, daemon, _place(shared, index), job_secret))
    except BaseException:
        SpawnContext(members).stop()
        raise
    return SpawnContext(members)


def _check_function(fn: Callable[..., Any], start_method: str) -> None:
    """Raise where a new process could not find the function: it was typed in, in a notebook or a shell.

    Raises:
        ValueError: It is such a function.
    """
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    typed_in = getattr(fn, "__module__", None) == "__main__" and spec is None and not hasattr(main, "__file__")
    if typed_in and start_method != "fork":
        name = getattr(fn, "__name__", "the function")
        imported = name if name.isidentifier() else "NAME"  # a lambda has none
        raise ValueError(
            f"spawn: {name} was typed in here, where new processes cannot find it. Define it in a file (in a notebook "
            f"`%%writefile ranks.py` does), and then `from ranks import {imported}`; or pass start_method='fork', "
            "before there are threads or groups"
        )


def _preload(context: Any, start_method: str, modules: Sequence[str]) -> None:
    """Have the fork server import modules, if it is still to be started.

    Raises:
        ValueError: There is none.
    """
    if start_method != "forkserver" or isinstance(modules, str):
        raise ValueError(f"spawn: preload is a list of modules for start_method='forkserver', not {modules!r}")
    context.set_forkserver_preload(["__main__", *modules])


def _start(
    context: Any,
    index: int,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    daemon: bool,
    environment: Mapping[str, str],
    job_secret: bytes | None,
) -> _Member:
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(
        target=run_child,
        # To the kernel the parent is the thread that starts a process, and threads may end early.
        args=(index, fn, args, writer, dict(environment), job_secret, _in_main_thread()),
        name=f"rank {index}",
        daemon=daemon,
    )
    process.start()
    writer.close()
    return _Member(index, process, reader)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _job(nprocs: int) -> tuple[dict[str, str], bytes | None]:
    """Return the variables that all processes share, and the job secret to give them, if it is for us to do so."""
    mine = secret.load()
    # What a launcher has told a rank above this process is not for those that are started here.
    is_told = not secret.is_withheld(os.environ) and any(os.environ.get(name) for name in _JOB_VARIABLES)
    if is_told:
        # The program arranges for itself. A descriptor is not inherited by a new process, so the secret is passed on.
        return {}, mine
    port = at_free_port(_probe)
    size = str(nprocs)
    return {
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }, mine or secret.new()


def _probe(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, bool(port))
        # opens: nothing, a port is only held that does not listen
        probe.bind(("127.0.0.1", port))
        return int(probe.getsockname()[1])


def _place(shared: Mapping[str, str], index: int) -> dict[str, str]:
    return {**shared, "RANK": str(index), "LOCAL_RANK": str(index)} if shared else {}


# What runs first in a spawned process: it takes its place in the job, and reports how the function fails

#: Less than a pipe holds, so that a process can end before anyone reads what it says.
_REPORT_NBYTES = 48 * 1024


def run_child(
    index: int,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    report: Connection,
    environment: Mapping[str, str],
    job_secret: bytes | None,
    die_with_parent: bool,
) -> None:
    """Call `fn(index, *args)`; if it raises, send the traceback and end with exit code 1."""
    keep_standard()
    if die_with_parent:
        _die_with_parent()
    os.environ.update(environment)
    if job_secret is not None:
        os.environ["RANKWISE_SECRET_FD"] = str(hand_down(job_secret))
    with contextlib.suppress(AttributeError, OSError, ValueError):  # there is no standard error to write to
        faulthandler.enable()  # a process that a signal such as SIGSEGV ends says where it was
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        # The parent has got it too, and tells of it.
        sys.exit(130)
    except Exception:
        import traceback

        text = traceback.format_exc().encode("utf-8", "replace")
        report.send_bytes(text[-_REPORT_NBYTES:])
        sys.exit(1)


def _received(report: Connection) -> str | None:
    """Return the traceback that an ended process has sent, if it has."""
    try:
        return report.recv_bytes().decode("utf-8", "replace") if report.poll() else None
    except (EOFError, OSError):
        return None


def _die_with_parent() -> None:
    """Have the kernel end this process when its parent is gone, however it went."""
    follow = die_with_parent(parent=os.getppid())
    parent = multiprocessing.parent_process()
    if follow is not None:
        follow()
    if parent is not None and not parent.is_alive():
        sys.exit(1)
