"""What the ranks of the tests of orders, sizes and ends run."""

from __future__ import annotations

import itertools
import random
import time
from collections import deque
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
from failing import error_of, heard
from programs import begin, end, until, wait_for, works_as_before

import rankwise as dist


def _pattern(index: int, nbytes: int) -> Any:
    return np.full(nbytes, index % 251, np.uint8)


def one_after_the_other(sizes: list[int]) -> None:
    """Send messages that the receiver asks for in the same order, and back."""
    rank, _ = begin()
    for sender in (0, 1):
        for index, nbytes in enumerate(sizes):
            if rank == sender:
                dist.send(_pattern(index, nbytes), 1 - rank)
            elif rank == 1 - sender:
                room = np.zeros(nbytes, np.uint8)
                dist.recv(room, sender)
                assert (room == index % 251).all()
    end()


def last_tag_first(count: int, nbytes: int) -> None:
    """Send much under one tag, both ways, and wait for another tag first."""
    rank, _ = begin()
    if rank < 2:
        peer = 1 - rank
        works: list[Any] = [dist.isend(_pattern(i, nbytes), peer, tag=0) for i in range(count)]
        works.append(dist.isend(_pattern(250, nbytes), peer, tag=1))
        room = np.zeros(nbytes, np.uint8)
        for tag, index in [(1, 250), *((0, i) for i in range(count))]:
            dist.recv(room, peer, tag=tag)
            assert (room == index % 251).all(), (tag, index)
        wait_for(works)
    end()


def late_receiver(count: int, nbytes: int) -> float:
    """Receive what was sent by a rank that has left; return how long a receive of what was never sent takes."""
    rank, _ = begin()
    took = 99.0
    if rank == 0:
        for index in range(count):
            dist.isend(_pattern(index, nbytes), 1, tag=index % 2)
    dist.barrier()
    if rank == 1:
        engine: Any = dist.group.WORLD.communicators()[0].engine
        until(lambda: engine.peers[0].gone is not None, engine.look)
        room = np.zeros(nbytes, np.uint8)
        for index in [*range(1, count, 2), *range(0, count, 2)]:
            dist.recv(room, 0, tag=index % 2)
            assert (room == index % 251).all(), index
        _, _, took = heard(dist.recv, room, 0)
    end()
    return took


def other_dtype(count: int, posted_first: bool) -> str:
    """Receive int64 into float64, then as bytes; return what the first receive says."""
    rank, _ = begin()
    said = ""
    if rank == 0:
        dist.barrier()
        wait_for([dist.isend(np.arange(count), 1, tag=tag) for tag in (3, 4)])
    elif rank == 1:
        room, raw = np.full(count, 7.0), np.zeros(8 * count, np.uint8)
        work = dist.irecv(room, 0, tag=3) if posted_first else None
        dist.barrier()
        said = str(error_of(lambda: dist.recv(room, 0, tag=3) if work is None else work.wait()))
        assert (room == 7.0).all()
        dist.recv(raw, 0, tag=4)
        assert (raw.view(np.int64) == np.arange(count)).all()
    else:
        dist.barrier()
    works_as_before()
    end()
    return said


def unusual_layouts() -> None:
    """Copy arrays whose bytes are not the machine's own, from read-only inputs."""
    rank, size = begin()
    padded = np.dtype({"names": ["a", "b"], "formats": ["u1", ">f8"], "offsets": [0, 8], "itemsize": 24})
    for dtype in (np.dtype(">i8"), np.dtype(">f4"), padded):
        for count in (1, size, 60, 5000, 131_074):
            want = np.zeros(count, dtype)
            for field in (want[name] for name in dtype.names) if dtype.names else (want,):
                field[...] = np.arange(count) % 100
            given = want.copy()
            given.flags.writeable = False
            got = given if rank == 2 else np.zeros_like(want)
            dist.broadcast(got, 2)
            assert (got == want).all(), (dtype, count, "broadcast")
            if count > 5000:
                continue
            parts = [np.zeros_like(want) for _ in range(size)]
            dist.all_gather(parts, given)
            assert all((part == want).all() for part in parts), (dtype, count, "all_gather")
            dist.gather(given, parts if rank == 1 else None, 1)
            got = np.zeros_like(want)
            dist.scatter(got, [given] * size if rank == 2 else None, 2)
            assert (got == want).all(), (dtype, count, "scatter")
            if dtype.names is None:
                for root in (0, size - 1):
                    got = given.copy() if rank == root else given
                    dist.reduce(got, root)
                    assert (got == want * (size if rank == root else 1)).all()
    end()


def factors(edges: list[int]) -> None:
    """Reduce with factors around the sizes at which the way changes, in what is sent and in what is summed."""
    rank, size = begin()
    for name in ("float16", "bfloat16", "float8_e4m3fn"):
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        for count in sorted(
            {edge // width + more for edge in edges for width in (dtype.itemsize, 4) for more in (0, 1)}
        ):
            op = dist.ReduceOp.PREMUL_SUM(0.5 if rank else 1.0)
            total = np.ones(count, dtype)
            dist.all_reduce(total, op)
            assert (total == 1 + 0.5 * (size - 1)).all(), (name, count)
            total = np.ones(count, dtype)
            dist.reduce(total, size - 1, op)
            assert (total == (1 + 0.5 * (size - 1) if rank == size - 1 else 1)).all(), (name, count)
            own = np.zeros(count // size, dtype)
            dist.reduce_scatter(own, [np.ones(count // size, dtype)] * size, op)
            assert (own == 1 + 0.5 * (size - 1)).all(), (name, count)
    end()


def one_among_many(counts: tuple[int, ...], turns: int) -> list[float]:
    """Return how long an exchange with rank 1 takes while so many receives from rank 2 wait, at the best."""
    rank, _ = begin(60.0)
    best = []
    for count in counts:
        works = []
        if rank == 0:
            rooms = np.zeros((count, 1))
            works = [dist.irecv(rooms[i], 2, tag=5) for i in range(count)]
        dist.barrier()
        least = 1.0
        for _ in range(turns):
            a = np.zeros(1)
            start = time.perf_counter()
            if rank == 0:
                dist.irecv(a, 1, tag=5).wait()
                dist.send(a, 1)
            elif rank == 1:
                dist.send(a, 0, tag=5)
                dist.recv(a, 0)
            least = min(least, time.perf_counter() - start)
        best.append(least)
        dist.barrier()
        if rank == 2:
            for i in range(count):
                dist.send(np.full(1, float(i)), 0, tag=5)
        for i, work in enumerate(works):
            work.wait()
            assert rooms[i] == i
    end()
    return best


def from_anyone(seed: int, sizes: list[int]) -> None:
    """Have two ranks send under some tags, and a third receive from either and from both, in any order of tags."""
    rank, _ = begin()
    sent = {sender: random.Random(f"{seed} {sender}").choices([*product(range(3), sizes)], k=40) for sender in (1, 2)}
    if rank == 0:
        _receive_all(random.Random(seed), sent, max(sizes))
    elif rank in sent:
        works = []
        for index, (tag, nbytes) in enumerate(sent[rank]):
            if index % 3 and nbytes <= _SURELY_SENT_NBYTES:
                dist.send(_pattern(index, nbytes), 0, tag=tag)
            else:
                works.append(dist.isend(_pattern(index, nbytes), 0, tag=tag))
        wait_for(works)
    end()


#: A message that a `send` may leave while its receiver waits for another.
_SURELY_SENT_NBYTES = 5_000


def _receive_all(draw: random.Random, sent: dict[int, list[tuple[int, int]]], longest: int) -> None:
    due = {
        (sender, tag): deque((i, nbytes) for i, (its, nbytes) in enumerate(messages) if its == tag)
        for sender, messages in sent.items()
        for tag in range(3)
    }
    while left := [line for line in due if due[line]]:
        sender, tag = draw.choice(left)
        src = draw.choice([None, sender])
        room = np.full(longest + 1, 255, np.uint8)
        if draw.random() < 0.5:
            source = dist.recv(room, src, tag=tag)
        else:
            work: Any = dist.irecv(room, src, tag=tag)
            work.wait()
            source = work.source_rank()
        assert src in (None, source)
        index, nbytes = due[source, tag].popleft()
        assert (room[:nbytes] == index).all(), (source, tag, index)
        assert room[nbytes] == 255


def nobody_starves() -> None:
    """Receive from anyone while one rank sends without end; another must have its turn."""
    rank, _ = begin()
    word = np.zeros(1, np.int64)
    if rank == 0:
        for taken in itertools.count():
            if taken == 100:
                dist.send(word, 2)
            if dist.recv(word) == 2:
                break
        dist.send(word, 1)
        while dist.recv(word) != 1 or word[0] == 0:
            pass
    elif rank == 1:
        stop: Any = dist.irecv(np.zeros(1, np.int64), 0)
        while not stop.is_completed():
            dist.send(word, 0)
        dist.send(word + 1, 0)
    elif rank == 2:
        dist.recv(word, 0)
        dist.send(word, 0)
    end()


def are_served_by_a_shortcut(each: int) -> list[int | None]:
    """Return of whom the shortcut takes messages from anyone, as many of each of two senders, which all are here."""
    rank, _ = begin()
    group: Any = dist.group.WORLD
    waiting = group.communicators()[0].engine.queued if rank == 0 else None
    room, found = np.zeros(4), list[int | None]()
    for _ in range(50):
        if rank:
            for _ in range(each):
                dist.send(room, 0)
        dist.barrier()
        # The first message of a group makes the shortcut; and while the barrier waits, it may take messages in.
        if waiting is not None and waiting()["unreceived"] == 0:
            found = [group.shortcuts.recv(room, None, 0) for _ in range(2 * each)]
        for _ in range(found.count(None) if found else 2 * each):
            if rank == 0:
                dist.recv(room)
        if dist.functional.broadcast_object(bool(found) and None not in found, 0):
            break
        found = []
    end()
    return found
