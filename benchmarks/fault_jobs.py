"""Small jobs whose ranks are forked from this process, to be hurt: cheap enough for hundreds of them.

Every time is of the system's monotonic clock, which all processes share, so that a moment in one can be compared with
a moment in another.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

import zmq  # noqa: F401

import rankwise as dist

# Imported before the ranks are forked, so that it is in no rank's time.
import rankwise_gloo_tcp.setup.creation  # noqa: F401

#: One trial, or several at a time, which is run by calling it; it tells what was seen.
Case = Callable[[], dict[str, Any] | list[dict[str, Any]]]

Program = Callable[[int], None]


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def say(**content: Any) -> None:
    """In a rank: tell the parent something, with the time."""
    line = json.dumps({"at": time.monotonic(), **content}) + "\n"
    os.write(int(os.environ["TELL_FD"]), line.encode())


class Job:
    """Some ranks that run `program(rank)`, each in a process of its own, with a default group of their own.

    Args:
        size: Number of ranks.
        program: What each runs, after `init_process_group`.
        transport: What `RANKWISE_GLOO_TRANSPORT` is.
        env: More variables.
        timeout_s: The group's time-out.
        begin: How a rank joins the others, instead of `init_process_group`.
    """

    def __init__(
        self,
        size: int,
        program: Program,
        transport: str = "auto",
        env: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
        begin: Callable[[int, int, int], None] | None = None,
    ) -> None:
        self.size, self._program, self._timeout_s = size, program, timeout_s
        self._env = {"RANKWISE_GLOO_TRANSPORT": transport, **(env or {})}
        self._port = free_port()
        self._begin = begin
        self.pids: list[int] = []
        self.told: list[list[dict[str, Any]]] = [[] for _ in range(size)]
        self.status: dict[int, int] = {}
        self._pipes: dict[int, int] = {}
        self._partial: dict[int, bytes] = {}

    def __enter__(self) -> Job:
        sys.stdout.flush()
        for rank in range(self.size):
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(read)
                self._be_rank(rank, write)
            os.close(write)
            self.pids.append(pid)
            self._pipes[read] = rank
            self._partial[read] = b""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for rank, pid in enumerate(self.pids):
            if rank not in self.status:
                os.kill(pid, signal.SIGKILL)
                self.status[rank] = os.waitpid(pid, 0)[1]
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes.clear()

    def _be_rank(self, rank: int, write: int) -> None:
        code = 1
        try:
            os.environ.update(self._env, TELL_FD=str(write), RANK=str(rank))
            if self._begin is not None:
                self._begin(rank, self.size, self._port)
            else:
                where = f"tcp://127.0.0.1:{self._port}"
                dist.init_process_group("gloo", where, self._timeout_s, self.size, rank)
            self._program(rank)
            code = 0
        except BaseException as error:
            say(crashed=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
        finally:
            os._exit(code)

    def wait_for(self, word: str, ranks: list[int] | None = None, timeout_s: float = 20.0) -> bool:
        """Wait until some ranks, or all, have said a word; tell whether they have in time."""
        ranks = list(range(self.size)) if ranks is None else ranks
        until = time.monotonic() + timeout_s
        while not all(any(word in line for line in self.told[rank]) for rank in ranks):
            left = until - time.monotonic()
            if left <= 0 or not self._pipes:
                return False
            self._listen(left)
        return True

    def finish(self, timeout_s: float = 30.0) -> bool:
        """Wait until all ranks have ended; tell whether they have in time. The others are killed."""
        until = time.monotonic() + timeout_s
        while self._pipes and time.monotonic() < until:
            self._listen(until - time.monotonic())
        while len(self.status) < self.size and time.monotonic() < until:
            self._reap()
            time.sleep(0.001)
        ended = len(self.status) == self.size
        self.__exit__(None, None, None)
        return ended

    def word(self, rank: int, word: str) -> dict[str, Any] | None:
        """Return the first line of a rank with a word."""
        return next((line for line in self.told[rank] if word in line), None)

    def signal(self, rank: int, number: int) -> float:
        """Send a signal to a rank, and return the time."""
        at = time.monotonic()
        os.kill(self.pids[rank], number)
        return at

    def _reap(self) -> None:
        for rank, pid in enumerate(self.pids):
            if rank not in self.status:
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    self.status[rank] = status

    def _listen(self, timeout_s: float) -> None:
        ready, _, _ = select.select(list(self._pipes), [], [], max(0.0, timeout_s))
        for pipe in ready:
            data = os.read(pipe, 1 << 16)
            rank = self._pipes[pipe]
            if not data:
                os.close(pipe)
                del self._pipes[pipe]
                continue
            *lines, self._partial[pipe] = (self._partial[pipe] + data).split(b"\n")
            for line in lines:
                with suppress(ValueError):
                    self.told[rank].append(json.loads(line))
