"""What ranks run that copy a long message together; `writes.c` counts what the sender copies, or lets it go wrong."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rankwise as dist

REFUSED, KILLED, STOPPED, SLOW = 1, 2, 3, 4
#: A message of rank 0 to rank 1, which is copied in 32 pieces.
LONG = 4 << 20
WITHIN_S = 50.0


def begin() -> int:
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=30)
    return dist.get_rank()


def written() -> int:
    """Return how many pieces this rank has written so far, also if one of them went wrong."""
    return int(ctypes.CDLL(None).writes_made())


def go_wrong(how: int, writes_from_now: int = 1) -> None:
    """Have a write of rank 0 go wrong; one that is slow is followed by more."""
    if begin() == 0:
        ctypes.CDLL(None).writes_go_wrong(how, writes_from_now)


def until_both_copy(send: Callable[[], None], receive: Callable[[], None]) -> int:
    """Exchange messages until rank 0 has copied some of one; return how many pieces."""
    rank, until, before = begin(), time.monotonic() + WITHIN_S, written()
    told = np.zeros(2, np.int64)
    while told[0] == 0 and told[1] == 0:
        receive() if rank else send()
        told[:] = written() - before, time.monotonic() > until
        dist.broadcast(told, 0)
    return int(told[0])


def numbers(first: int = 0) -> np.ndarray:
    return np.arange(first, first + LONG, dtype=np.float32)


def whole(array: np.ndarray, first: int = 0) -> None:
    """Raise unless every number is in its place."""
    wrong = np.flatnonzero(array != numbers(first))
    if wrong.size:
        raise AssertionError(f"{wrong.size} numbers are wrong, from {wrong[0]} on")


def _send() -> None:
    dist.send(numbers(), 1)


def _receive() -> None:
    into = np.zeros(LONG, np.float32)
    dist.recv(into, 0)
    whole(into)


def _receive_posted() -> None:
    into = np.zeros(LONG, np.float32)
    work = dist.irecv(into, 0)
    assert work is not None
    work.wait()
    whole(into)


def _broadcast() -> None:
    array = numbers() if dist.get_rank() == 0 else np.zeros(LONG, np.float32)
    dist.broadcast(array, 0)
    whole(array)


def _scatter() -> None:
    array = np.zeros(LONG, np.float32)
    dist.scatter(array, [numbers(0), numbers(1)] if dist.get_rank() == 0 else None, 0)
    whole(array, dist.get_rank())


def _gather() -> None:
    rank = dist.get_rank()
    parts = [np.zeros(LONG, np.float32) for _ in range(2)] if rank == 1 else None
    dist.gather(numbers(rank), parts, 1)
    for number, part in enumerate(parts or ()):
        whole(part, number)


#: What rank 0 does, and what rank 1 does, so that the one copies to the other.
WAYS: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
    "message": (_send, _receive),
    "posted": (_send, _receive_posted),
    "broadcast": (_broadcast, _broadcast),
    "scatter": (_scatter, _scatter),
    "gather": (_gather, _gather),
}


def plainly(way: str) -> int:
    begin()
    go_wrong(SLOW)
    return until_both_copy(*WAYS[way])


def shorter_and_odd() -> int:
    """Send a message whose last piece is short into an array that is longer."""
    count = LONG - 12345

    def receive() -> None:
        into = np.full(LONG, -1, np.float32)
        dist.recv(into, 0)
        np.testing.assert_array_equal(into[:count], numbers()[:count])
        assert (into[count:] == -1).all()

    return until_both_copy(lambda: dist.send(numbers()[:count], 1), receive)


def by_two_threads() -> int:
    """Receive two messages at once: one of the copies has the words that both ranks know."""
    go_wrong(SLOW)

    def both(act: Callable[[int], None]) -> None:
        failed: list[BaseException] = []

        def guarded(tag: int) -> None:
            try:
                act(tag)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=guarded, args=(tag,)) for tag in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]

    def receive(tag: int) -> None:
        into = np.zeros(LONG, np.float32)
        dist.recv(into, 0, tag=tag)
        whole(into, tag)

    return until_both_copy(lambda: both(lambda tag: dist.send(numbers(tag), 1, tag=tag)), lambda: both(receive))


def refused(at: int) -> list[int]:
    """Have a piece refused by the system: the receiver copies it, and all that follow of this message."""
    go_wrong(REFUSED, at)
    return [until_both_copy(_send, _receive) for _ in range(at + 1)]  # each time at least one piece


def refused_in_a_collective() -> tuple[int, int]:
    """Have a piece refused that the owner writes; return how many pieces it has tried until then, and afterwards.

    What could not be written goes through the board, and the owner does not try again.
    """
    begin()
    go_wrong(REFUSED)
    tried, before = until_both_copy(_broadcast, _broadcast), written()
    for mine in (_broadcast, _scatter, _broadcast):
        mine()
    return tried, written() - before


def killed(way: str, at: int) -> str:
    """Let the sender be killed in the midst of a piece that it has taken; return what the receiver is told."""
    go_wrong(KILLED, at)
    try:
        for _ in range(at):  # each time at least one piece
            until_both_copy(*WAYS[way])
    except dist.PeerDiedError as error:
        return str(error)
    finally:
        dist.destroy_process_group()
    return "nothing"


class Enough(Exception):
    """What a signal handler raises."""


def stopped(way: str) -> str:
    """Let the sender stand still in the midst of a piece: a signal ends what receives, and its array stays."""
    rank = begin()
    pid = np.array([os.getpid()])
    dist.broadcast(pid, 0)
    go_wrong(STOPPED)
    try:
        return _send_and_stop(way) if rank == 0 else _receive_from_a_stopped(way, int(pid[0]))
    finally:
        dist.destroy_process_group()


def stopped_for_long() -> str:
    """Let the owner stand still in the midst of a piece of a broadcast for longer than that may take."""
    rank = begin()
    pid = np.array([os.getpid()])
    dist.broadcast(pid, 0)
    go_wrong(STOPPED)
    try:
        return _send_and_stop("broadcast") if rank == 0 else _late(int(pid[0]))
    finally:
        dist.destroy_process_group()


def _late(pid: int) -> str:
    try:
        until_both_copy(lambda: None, lambda: dist.broadcast(np.zeros(LONG, np.float32), 0, timeout=1))
    except dist.DistTimeoutError as error:
        return f"late: {error.waited_for}"
    finally:
        os.kill(pid, signal.SIGCONT)
    return "nothing"


def _send_and_stop(way: str) -> str:
    try:
        until_both_copy(WAYS[way][0], lambda: None)
    except dist.DistError:
        return "the group has ended"
    return "nothing"


def _receive_from_a_stopped(way: str, pid: int) -> str:
    def enough(number: int, frame: object) -> None:
        raise Enough

    def wait_for_the_stop() -> None:
        while "\nState:\tT" not in Path(f"/proc/{pid}/status").read_text():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGALRM)

    def receive() -> None:
        into = np.zeros(LONG, np.float32)
        received.append(weakref.ref(into))
        dist.recv(into, 0) if way == "message" else dist.broadcast(into, 0)

    received: list[weakref.ref[np.ndarray]] = []
    board: Any = dist.group.WORLD.communicators()[0].strategy.board  # type: ignore[union-attr]
    before = signal.signal(signal.SIGALRM, enough)
    threading.Thread(target=wait_for_the_stop).start()
    try:
        until_both_copy(lambda: None, receive)
        return "nothing"
    except Enough:
        told = "interrupted"
    finally:
        signal.signal(signal.SIGALRM, before)
    gc.collect()  # nothing else holds the array any more
    told += " and the array stays" if received[-1]() is not None else " and the array has gone"
    if way == "broadcast" and board._words[board._controls[1]] >> 32:
        told += ", although more may be written to it"
    os.kill(pid, signal.SIGCONT)
    return told
