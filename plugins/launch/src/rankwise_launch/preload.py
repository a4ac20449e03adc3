"""The process that ranks are forked from. Run as a program by `preloading`, which tells it what to import.

It imports the modules once, and forks a rank for each request before any thread exists. It stays the parent of the
ranks, and tells how they have ended. Like `guard` it needs none of ours: a rank has what it has asked for, and no more.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

#: What says how long a message is.
HEAD_NBYTES = 4
#: What ends jobs, and what is for ranks; as in `interrupts`. A scheduler may send these to every process of a job, and
#: the launcher passes them on to the ranks.
NOT_OURS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGXCPU")


class Program:
    """A file to run, compiled once for all ranks that find it as it was then."""

    _known: tuple[str, tuple[int, ...], CodeType] | None = None

    def __init__(self, head: str) -> None:
        self.path = os.path.join(os.getcwd(), head)  # as the interpreter writes it
        self.loader = SourceFileLoader("__main__", self.path)

    def code(self) -> CodeType:
        """Return what to run."""
        state = self._state()
        if Program._known is None or Program._known[:2] != (self.path, state):
            return self.loader.source_to_code(self.loader.get_data(self.path), self.path)
        return Program._known[2]

    def prepare(self) -> None:
        """Compile it; what is wrong with it, the ranks will say."""
        with suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("error")  # which each rank shows, or not, as it is told
            Program._known = None
            state = self._state()
            Program._known = self.path, state, self.code()

    def _state(self) -> tuple[int, ...]:
        found = os.stat(self.path)
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class Rank:
    """What a forked process is to run.

    Args:
        order: The request.
        descriptors: Its standard streams.
        handlers: What it does on signals that its parent lets pass.
    """

    def __init__(self, order: dict[str, Any], descriptors: list[int], handlers: Mapping[int, Any]) -> None:
        self._order, self._descriptors, self._handlers = order, descriptors, handlers

    def become(self) -> None:
        """Make of this process what it would be if it had been started by itself."""
        os.setsid()
        for signal_number, handler in self._handlers.items():
            signal.signal(signal_number, handler)
        for number, descriptor in enumerate(self._descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        _change(os.environ, self._order["environment"])
        numbers = sys.modules.get("numpy.random")
        if numbers is not None:
            numbers.seed()  # else all ranks would draw the same, as they do from no other generator
        sys.argv[:] = self._order["argv"]
        sys.modules["__main__"] = main = ModuleType("__main__")
        main.__dict__["__builtins__"] = sys.modules["builtins"]

    def run(self) -> None:
        """Run the program."""
        head = self._order["argv"][0]
        if self._order["module"]:
            import runpy

            runpy._run_module_as_main(head)  # type: ignore[attr-defined]  # what `python -m` calls
            return
        program, main = Program(head), sys.modules["__main__"].__dict__
        main.update(__file__=program.path, __loader__=program.loader, __cached__=None)
        exec(program.code(), main)


def serve(line: socket.socket) -> Rank | None:
    """Import the modules, and fork ranks until the launcher has gone; in a rank, return what it is."""
    first, _ = read(line, 0)
    if first is None:
        return None
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = first["folder"]  # in place of this file's
    trouble = _import(first["modules"])
    if first["program"]:
        Program(first["program"]).prepare()
    handlers = _let_pass()
    gc.collect()
    gc.freeze()  # what is shared stays shared for longer
    _answer(line, trouble)
    while True:
        order, descriptors = read(line, 3)
        if order is None:
            return None
        if order["do"] == "fork":
            rank = _fork(line, order, descriptors, handlers)
            if rank is not None:
                return rank
        else:
            _answer(line, {"code": _end_of(order["pid"], order["do"])})


def _import(modules: list[str]) -> dict[str, str]:
    """Import modules; return what is in the way of forking, and what kind of thing that is."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            return {"kind": "missing", "text": f"{name}: {error}"}
        except BaseException:
            return {"kind": "failed", "text": f"{name} cannot be imported:\n{traceback.format_exc().rstrip()}"}
        count = _threads()
        if count > 1:
            names = ", ".join(thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
            told = f" ({names})" if names else ""
            return {"kind": "threads", "text": f"{name} starts threads{told}, which a forked process does not have"}
    return {}


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def _change(found: MutableMapping[str, str], wanted: dict[str, str]) -> None:
    """Make an environment what is wanted; a forked process has most of it, and what it leaves alone it shares."""
    for name in [name for name in found if name not in wanted]:
        del found[name]
    for name, value in wanted.items():
        if found.get(name) != value:
            found[name] = value


def _let_pass() -> dict[int, Any]:
    """Have signals that are not this process's do nothing here; return what did so before, which is the ranks'."""
    found = [getattr(signal, name) for name in NOT_OURS if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in found}
    # None is a handler of a module in C, and what is ignored stays so.
    before = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}
    for number in before:
        signal.signal(number, signal.SIG_IGN)
    return before


def _fork(
    line: socket.socket, order: dict[str, Any], descriptors: list[int], handlers: Mapping[int, Any]
) -> Rank | None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    try:
        pid = os.fork()
    except OSError as error:
        _answer(line, {"error": error.strerror})
        pid = -1
    if pid == 0:
        line.close()
        rank = Rank(order, descriptors, handlers)
        rank.become()
        return rank
    for descriptor in descriptors:
        os.close(descriptor)
    if pid > 0:
        _answer(line, {"pid": pid})
    return None


def _end_of(pid: int, do: str) -> int | None:
    """Return how a rank has ended, negative for a signal; None while it runs. To "look" keeps what others can read."""
    try:
        if do == "look" and hasattr(os, "waitid"):
            end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if end is None:
                return None
            return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        found, status = os.waitpid(pid, 0 if do == "wait" else os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if found else None


def read(line: socket.socket, most_descriptors: int) -> tuple[dict[str, Any] | None, list[int]]:
    """Return the next message and its descriptors; None once the other end has gone."""
    data, descriptors, _, _ = socket.recv_fds(line, HEAD_NBYTES, max(most_descriptors, 1))
    while data and len(data) < HEAD_NBYTES + int.from_bytes(data[:HEAD_NBYTES].ljust(HEAD_NBYTES), "big"):
        more = line.recv(1 << 16)
        if not more:
            return None, descriptors
        data += more
    return (json.loads(data[HEAD_NBYTES:]), descriptors) if data else (None, descriptors)


def _answer(line: socket.socket, content: dict[str, Any]) -> None:
    data = json.dumps(content).encode()
    line.sendall(len(data).to_bytes(HEAD_NBYTES, "big") + data)


def _begin() -> Rank | None:
    line = socket.socket(fileno=int(sys.argv[1]))
    try:
        return serve(line)
    finally:
        line.close()


# The program runs from here, so that of this file its traces have this one frame, which is taken off.
if __name__ == "__main__":
    _rank = _begin()
    if _rank is not None:
        try:
            _rank.run()
        except SystemExit:
            raise
        except BaseException as _error:
            _place = _error.__traceback__
            while _place is not None and _place.tb_frame.f_code.co_filename.startswith((__file__, "<frozen importlib")):
                _place = _place.tb_next
            sys.excepthook(type(_error), _error.with_traceback(_place), _place)
            sys.excepthook = lambda *_: None  # it has been told; what ends the process is for the interpreter
            raise
