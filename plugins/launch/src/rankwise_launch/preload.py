"""The process that ranks are forked from. Run as a program by `preloading`, which tells it what to import.

It imports the modules once, and forks a rank for each request before any thread exists. It stays the parent of the
ranks, and tells how they have ended. Like `guard` it needs none of ours: a rank has what it has asked for, and no more.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
import threading
import traceback
from types import ModuleType
from typing import Any

__all__ = ["HEAD_NBYTES", "Rank", "read", "serve"]

#: What says how long a message is.
HEAD_NBYTES = 4


class Rank:
    """What a forked process is to run.

    Args:
        order: The request.
        descriptors: Its standard streams.
    """

    def __init__(self, order: dict[str, Any], descriptors: list[int]) -> None:
        self._order, self._descriptors = order, descriptors

    def become(self) -> None:
        """Make of this process what it would be if it had been started by itself."""
        os.setsid()
        for number, descriptor in enumerate(self._descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(self._order["environment"])
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
        from importlib.machinery import SourceFileLoader

        path = os.path.join(os.getcwd(), head)  # as the interpreter writes it
        loader, main = SourceFileLoader("__main__", path), sys.modules["__main__"].__dict__
        main.update(__file__=path, __loader__=loader, __cached__=None)
        exec(loader.source_to_code(loader.get_data(path), path), main)


def serve(line: socket.socket) -> Rank | None:
    """Import the modules, and fork ranks until the launcher has gone; in a rank, return what it is."""
    first, _ = read(line, 0)
    if first is None:
        return None
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = first["folder"]  # in place of this file's
    trouble = _import(first["modules"])
    gc.collect()
    gc.freeze()  # what is shared stays shared for longer
    _answer(line, trouble)
    while True:
        order, descriptors = read(line, 3)
        if order is None:
            return None
        if order["do"] == "fork":
            rank = _fork(line, order, descriptors)
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


def _fork(line: socket.socket, order: dict[str, Any], descriptors: list[int]) -> Rank | None:
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
        rank = Rank(order, descriptors)
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
