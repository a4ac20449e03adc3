"""What the ranks of the tests of shared memory run: calls drawn at random, compared with a model in plain NumPy."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import signal
import threading
import time
import warnings
from functools import partial
from typing import Any

import numpy as np
from failing import end_of, error_of, heard
from programs import _descriptors, around, begin, end, failures, until, wait_for

import rankwise as dist
from rankwise.basics.reduce_op import ReduceOp
from rankwise_gloo_tcp.board import board
from rankwise_gloo_tcp.machine import peer_memory
from rankwise_gloo_tcp.transport.rings import _TAIL

# So that parts of the sizes that are drawn are read from their owners' memory too, where the ranks may do so.
board.FETCH_FROM_NBYTES = 32 << 10

#: The number of a system call that has no function in the C library.
_MEMFD_SECRET = 447

#: Every byte of a message can be told: a slice of this that begins at a number of the message's own.
_PATTERN = (np.arange(6 << 20) % 251).astype(np.uint8)
_MOVED = ("<i8", "u1", ">f4", "S3", "<c16", "M8[s]", "?", "S90001")
_REDUCED = ("<i8", "<i4", ">i4", "<u2", "<f8")


def _comm() -> Any:
    return dist.group.WORLD.communicators()[0]


# ---------------------------------------------------------------------- collectives


class _Drawn:
    """One collective, the same on all ranks, with what each rank contributes and must get."""

    def __init__(self, rng: np.random.Generator, rank: int, size: int, limits: list[int]) -> None:
        self.rng, self.rank, self.size, self.limits = rng, rank, size, limits
        self.root = int(rng.integers(size))

    def data(self, dtype: np.dtype[Any], count: int) -> list[Any]:
        """Return an array for each rank; all ranks draw the same."""
        start = self.rng.integers(1, 100, self.size)
        raw = [_PATTERN[s : s + count * dtype.itemsize] for s in start]
        if dtype.kind in "iu":
            return [(r[:count] % 50).astype(dtype) for r in raw]
        if dtype.kind in "fc":
            return [r[:count].astype(dtype) for r in raw]
        if dtype.kind == "?":
            return [r[:count] > 100 for r in raw]
        return [r.copy().view(dtype) for r in raw]

    def count(self, dtype: np.dtype[Any]) -> int:
        """Return a number of elements near where something changes, if not a small one."""
        limit = int(self.rng.choice([*self.limits, 0, 0, 0])) // dtype.itemsize
        count = limit * int(self.rng.choice([1, 1, 1, 2, 3])) + int(self.rng.integers(-1, 3))
        return min(max(count, 0), (3_000_000 if self.rng.random() < 0.3 else 700_000) // dtype.itemsize)

    def uneven(self, dtype: np.dtype[Any]) -> list[int]:
        return [self.count(dtype) if self.rng.random() < 0.7 else 0 for _ in range(self.size)]

    def run(self) -> str:
        name = str(self.rng.choice([n for n in dir(self) if n.startswith("do_")]))
        getattr(self, name)()
        return name

    def do_all_reduce(self) -> None:
        dtype = np.dtype(str(self.rng.choice(_REDUCED)))
        count = self.count(dtype)
        arrays = self.data(dtype, count)
        name = str(self.rng.choice(["SUM", "MAX", "MIN"]))
        expected = {"SUM": sum, "MAX": np.maximum.reduce, "MIN": np.minimum.reduce}[name](arrays)
        mine = arrays[self.rank].copy()
        if count == 1 and self.rng.random() < 0.5:
            mine = mine.reshape(())
        work = dist.all_reduce(mine, getattr(ReduceOp, name), async_op=bool(self.rng.random() < 0.3))
        if work is not None:
            work.wait()
        assert (mine.reshape(-1) == expected).all(), (name, dtype, count)

    def do_reduce(self) -> None:
        dtype = np.dtype(str(self.rng.choice(_REDUCED)))
        arrays = self.data(dtype, self.count(dtype))
        mine = arrays[self.rank].copy()
        dist.reduce(mine, self.root)
        expected = sum(arrays) if self.rank == self.root else arrays[self.rank]
        assert (mine == expected).all(), (dtype, mine.size)

    def do_broadcast(self) -> None:
        dtype = np.dtype(str(self.rng.choice(_MOVED)))
        arrays = self.data(dtype, self.count(dtype))
        mine = arrays[self.rank].copy()
        dist.broadcast(mine, self.root)
        assert (mine == arrays[self.root]).all(), (dtype, mine.size)

    def _parts(self) -> tuple[np.dtype[Any], list[int], list[Any]]:
        dtype = np.dtype(str(self.rng.choice(_MOVED)))
        counts = self.uneven(dtype)
        return dtype, counts, self.data(dtype, max(counts))

    def do_all_gather(self) -> None:
        dtype, counts, arrays = self._parts()
        parts = [np.zeros(count, dtype) for count in counts]
        dist.all_gather(parts, arrays[self.rank][: counts[self.rank]].copy())
        for part, array in zip(parts, arrays, strict=True):
            assert (part == array[: part.size]).all(), (dtype, counts)

    def do_gather(self) -> None:
        dtype, counts, arrays = self._parts()
        parts = [np.zeros(count, dtype) for count in counts] if self.rank == self.root else None
        dist.gather(arrays[self.rank][: counts[self.rank]].copy(), parts, self.root)
        for part, array in zip(parts or (), arrays, strict=False):
            assert (part == array[: part.size]).all(), (dtype, counts)

    def do_scatter(self) -> None:
        dtype, counts, arrays = self._parts()
        parts = [array[:count].copy() for array, count in zip(arrays, counts, strict=True)]
        mine = np.zeros(counts[self.rank], dtype)
        dist.scatter(mine, parts if self.rank == self.root else None, self.root)
        assert (mine == parts[self.rank]).all(), (dtype, counts)

    def do_reduce_scatter(self) -> None:
        dtype = np.dtype(str(self.rng.choice(_REDUCED)))
        counts = self.uneven(dtype)
        contributions = [self.data(dtype, max(counts)) for _ in range(self.size)]  # by part, by rank
        parts = [c[self.rank][:count].copy() for c, count in zip(contributions, counts, strict=True)]
        mine = np.zeros(counts[self.rank], dtype)
        dist.reduce_scatter(mine, parts)
        assert (mine == sum(contributions[self.rank])[: mine.size]).all(), (dtype, counts)

    def do_all_to_all(self) -> None:
        dtype = np.dtype(str(self.rng.choice(_MOVED)))
        counts = [self.uneven(dtype) for _ in range(self.size)]  # by sender, by receiver
        arrays = self.data(dtype, max(map(max, counts)))
        outs = [np.zeros(counts[peer][self.rank], dtype) for peer in range(self.size)]
        dist.all_to_all(outs, [arrays[self.rank][:count].copy() for count in counts[self.rank]])
        for out, array in zip(outs, arrays, strict=True):
            assert (out == array[: out.size]).all(), (dtype, counts)

    def do_barrier(self) -> None:
        dist.barrier()

    def do_mismatch(self) -> None:
        """One rank makes another call, of any way through the memory; the group must be as good as before."""
        calls = [
            lambda: dist.all_reduce(np.ones(3)),
            lambda: dist.all_reduce(np.ones(300_000)),
            lambda: dist.broadcast(np.ones(200_000), 0),
            lambda: dist.reduce_scatter(np.ones(5), [np.ones(5)] * self.size),
            lambda: dist.broadcast(np.zeros(1, "S3000000"), 0),  # fits no slot: goes by messages
            dist.barrier,
        ]
        usual, odd = self.rng.choice(len(calls), 2, replace=False)
        error = error_of(calls[odd if self.rank == self.root else usual])
        assert isinstance(error, dist.CollectiveMismatchError)

    def do_late(self) -> None:
        """One rank comes late, so that the others sleep."""
        if self.rank == self.root:
            time.sleep(0.003)


def collectives(seed: int, rounds: int) -> list[str]:
    rank, size = begin()
    board = _comm().board
    limits = [board.slot_nbytes(1), board.slot_nbytes(size), board.area_nbytes, (512 << 10) // (size - 1)]
    rng = np.random.default_rng(seed)
    names = []
    for turn in range(rounds):
        state = rng.bit_generator.state
        try:
            names.append(_Drawn(rng, rank, size, limits).run())
        except BaseException as error:
            raise AssertionError(f"seed {seed}, round {turn}, after {names[-3:]}, state {state['state']}") from error
    end()
    return names


def secret(nbytes: int) -> Any:
    """Return memory that no other process can read, as that of a device's driver is; None where there is none."""
    descriptor = ctypes.CDLL(None).syscall(_MEMFD_SECRET, 0)
    if descriptor < 0:
        return None
    try:
        os.ftruncate(descriptor, nbytes)
        return np.frombuffer(mmap.mmap(descriptor, nbytes), np.uint8)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def unreadable(rounds: int) -> None:
    """Send from memory that the kernel reads for nobody else, on one rank or on all."""
    rank, size = begin()
    hidden = secret(3_000_000)
    assert hidden is not None

    def held(array: Any, hides: bool) -> Any:
        """Return the same, in that memory."""
        if not hides:
            return array.copy()
        place = hidden[: array.nbytes].view(array.dtype)
        place[:] = array
        return place

    rng = np.random.default_rng(size)
    for _ in range(rounds):
        hides = rank in rng.choice(size, rng.integers(1, size + 1), replace=False)
        for nbytes in (70_000, 1_000_000, 3_000_000):
            arrays = [_PATTERN[first : first + nbytes] for first in rng.integers(1, 100, size)]
            root, mine = int(rng.integers(size)), held(arrays[rank], hides)
            outs = [np.zeros(nbytes, np.uint8) for _ in range(size)]
            dist.all_gather(outs, mine)
            assert all((out == array).all() for out, array in zip(outs, arrays, strict=True))
            dist.gather(mine, outs if rank == root else None, root)
            assert all((out == array).all() for out, array in zip(outs, arrays, strict=True))
            cut = nbytes // size
            parts = [held(array[:cut], False) for array in arrays[:-1]] + [mine[:cut]]
            dist.all_to_all([out[:cut] for out in outs], parts)
            ends = [arrays[source if rank == size - 1 else rank] for source in range(size)]
            assert all((out[:cut] == end[:cut]).all() for out, end in zip(outs, ends, strict=True))
            dist.scatter(outs[0], [mine] * size if rank == root else None, root)
            assert (outs[0] == arrays[root]).all()
            wait_for([dist.irecv(outs[0], (rank - 1) % size), dist.isend(mine, (rank + 1) % size)])
            assert (outs[0] == arrays[rank - 1]).all()
            dist.broadcast(mine, root)
            assert (mine == arrays[root]).all()
    end()


def exchanges(rounds: int) -> None:
    """Have all ranks send long arrays to all, posted in any order, while they compute, and waited for in any order."""
    rank, size = begin()
    rng, own = np.random.default_rng(7), np.random.default_rng(rank)
    others = [peer for peer in range(size) if peer != rank]
    for turn in range(rounds):
        lengths = rng.choice([1, 1000, 256 << 10, (256 << 10) + 1, 1 << 20, 5_000_000], (size, size))
        rooms = {peer: np.zeros(lengths[peer, rank] + int(own.integers(2)), np.uint8) for peer in others}
        begins = [partial(dist.irecv, rooms[peer], peer, tag=turn % 3) for peer in others]
        begins += [
            partial(dist.isend, _pattern(rank, turn, lengths[rank, peer]), peer, tag=turn % 3) for peer in others
        ]
        works = [begins[i]() for i in own.permutation(len(begins))]
        if own.random() < 0.3:
            until(works[0].is_completed)
        wait_for([works[i] for i in own.permutation(len(works))])
        for peer in others:
            assert (rooms[peer][: lengths[peer, rank]] == _pattern(peer, turn, lengths[peer, rank])).all(), (turn, peer)
    end()


def averages_of_what_has_no_quotient() -> None:
    """Divide what NumPy would warn of, while warnings are errors."""
    begin()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for count in (3, 300_000):
            array, part = np.full(count, complex(np.inf, 0)), np.zeros(count, complex)
            dist.all_reduce(array, ReduceOp.AVG)
            dist.reduce_scatter(part, [array] * dist.get_world_size(), ReduceOp.AVG)
            assert not np.isfinite([array, part]).any()
    end()


# ---------------------------------------------------------------------- messages


def _schedule(seed: int, size: int, count: int, edges: list[int]) -> dict[tuple[int, int], list[tuple[int, int, str]]]:
    """Return for each pair its messages: tag, size and way. Within bounds, so that any order of receives is legal."""
    rng = np.random.default_rng(seed)
    ways = ["send", "isend", "isend"]
    found = {}
    for source in range(size):
        for target in range(size):
            sizes = [int(rng.choice(edges) + rng.integers(-1, 2)) if rng.random() < 0.5 else 0 for _ in range(count)]
            sizes = [max(n, 0) or int(rng.integers(0, 3000)) for n in sizes]
            tags = [int(rng.choice([0, 1, 2])) for _ in range(count)]
            chosen = ["isend" if source == target else str(rng.choice(ways)) for _ in range(count)]
            found[source, target] = list(zip(tags, sizes, chosen, strict=True))
    return found


def _pattern(source: int, index: int, nbytes: int) -> Any:
    start = (source * 83 + index * 7) % 251
    return _PATTERN[start : start + nbytes]


def messages(seed: int, rounds: int, count: int) -> None:
    """Send to everyone on one thread, receive from each rank on another, so that nobody waits in a circle."""
    rank, size = begin()
    pipe = _comm().engine.peers.pipes[0]
    eager, piece, ring = pipe.eager_nbytes, pipe._piece_nbytes, pipe.rings.capacity
    edges = [1, 32, 64, 32 << 10, 64 << 10, eager - 32, eager, eager, eager, piece, 2 * piece, ring, ring + piece]
    for turn in range(rounds):
        plan = _schedule(seed + turn, size, count, edges)
        jobs: list[Any] = [(_receive_all, plan, rank, source, seed + turn) for source in range(size)]
        if errors := failures([(_send_all, plan, rank, size, seed + turn), *jobs]):
            raise AssertionError(f"seed {seed}, round {turn}") from errors[0]
        dist.barrier()
    end()


def _send_all(plan: Any, rank: int, size: int, seed: int) -> None:
    rng = np.random.default_rng([seed, rank, 1])
    left = {peer: list(enumerate(plan[rank, peer])) for peer in range(size)}
    works = []
    while any(left.values()):
        peer = int(rng.choice([peer for peer, waiting in left.items() if waiting]))
        index, (tag, nbytes, way) = left[peer].pop(0)
        array = _pattern(rank, index, nbytes).copy()
        if way == "isend":
            works.append(dist.isend(array, peer, tag=tag))
        else:
            dist.send(array, peer, tag=tag)
    wait_for(works)


def _receive_all(plan: Any, rank: int, source: int, seed: int) -> None:
    """Begin to receive in the order in which the source sends, but wait in any order."""
    rng = np.random.default_rng([seed, rank, source, 2])
    pending: list[tuple[Any, Any, Any]] = []
    for index, (tag, nbytes, _) in enumerate(plan[source, rank]):
        room = np.zeros(nbytes + int(rng.choice([0, 0, 5])), np.uint8)
        about = (source, index, tag, nbytes)
        if rng.random() < 0.5:
            pending.append((dist.irecv(room, source, tag=tag), room, about))
        else:
            assert dist.recv(room, source, tag=tag) == source
            _check(room, about)
        while pending and rng.random() < 0.4:
            _wait(*pending.pop(int(rng.integers(len(pending)))))
    for waiting in pending:
        _wait(*waiting)


def _wait(work: Any, room: Any, about: Any) -> None:
    work.wait()
    _check(room, about)


def _check(room: Any, about: tuple[int, int, int, int]) -> None:
    source, index, _, nbytes = about
    assert (room[:nbytes] == _pattern(source, index, nbytes)).all(), about
    assert not room[nbytes:].any(), about


def from_anyone(seed: int, count: int) -> None:
    """Receive from anyone, on two threads with a tag each; of one source and tag the order must be kept."""
    rank, size = begin()
    rng = np.random.default_rng(seed)
    sizes = rng.choice([0, 8, 3000, 70_000, 140_000, 600_000], (2, size, count))

    def take(tag: int) -> None:
        seen = dict.fromkeys(range(1, size), 0)
        for _ in range(count * (size - 1)):
            room = np.zeros(600_000, np.uint8)
            source = dist.recv(room, tag=tag)
            _check(room, (source, seen[source], tag, int(sizes[tag, source, seen[source]])))
            seen[source] += 1

    def give(tag: int) -> None:
        wait_for([dist.isend(_pattern(rank, i, int(n)).copy(), 0, tag=tag) for i, n in enumerate(sizes[tag, rank])])

    for error in failures([(give if rank else take, tag) for tag in range(2)]):
        raise error
    end()


def large_ones_in_another_order(nbytes: int) -> None:
    """Long messages lie with their sender: any number of them may wait for receives in another order."""
    rank, _ = begin()
    if rank == 0:
        wait_for([dist.isend(np.full(nbytes, tag, np.uint8), 1, tag=tag) for tag in range(3)])
    elif rank == 1:
        for tag in (2, 1, 0):
            room = np.zeros(nbytes, np.uint8)
            dist.recv(room, 0, tag=tag, timeout=10)
            assert (room == tag).all()
    end()


def waits_for_room(count: int, nbytes: int) -> float:
    """Return which part of long messages, each of which waits for room several times, takes as long as a tick."""
    rank, _ = begin()
    array = np.zeros(nbytes, np.uint8)
    dist.barrier()
    took = []
    for _ in range(count):
        start = time.perf_counter()
        if rank == 0:
            dist.isend(array, 1).wait()
        elif rank == 1:
            dist.recv(array, 0)
        took.append(time.perf_counter() - start)
    dist.barrier()
    end()
    return sum(1 for t in took if t > 0.045) / count


def nobody_sends(spin_s: float) -> float:
    """Return how long a receive from anyone with a time-out of 0.3 s takes while this looks for long."""
    rank, _ = begin()
    dist.barrier()
    took = 0.0
    if rank == 0:
        _comm().engine.progress_lock.spin_policy.spin_s = spin_s
        _, _, took = heard(dist.recv, np.zeros(1), timeout=0.3)
        dist.recv(np.zeros(1), 1)
    elif rank == 1:
        room = np.zeros(1)
        heard(dist.recv, room, 0, timeout=0.8)  # a rank that never sleeps is freed by this one's message alone
        dist.send(room, 0)
    dist.barrier()
    end()
    return took


def too_long_and_withdrawn(rounds: int) -> None:
    """What fails or is withdrawn must neither take room for good nor swallow another message."""
    rank, _ = begin()
    for turn in range(rounds):
        if rank == 0:
            wait_for([dist.isend(np.full(60_000, i, np.uint8), 1, tag=i % 2) for i in range(20)])
        elif rank == 1:
            unmet = dist.irecv(np.zeros(4), 0, tag=9)
            for i in range(20):
                room = np.zeros(60_000 if i % 2 else 100, np.uint8)
                error = error_of(partial(dist.recv, room, 0, tag=i % 2))
                assert error is None if i % 2 else isinstance(error, dist.DistBackendError), turn
                assert error or (room == i).all()
            assert unmet.cancel()
        dist.barrier()
    if rank == 0:  # what has been taken is confirmed, but for what is too little for a frame, of Python and of C
        window, engine = _comm().engine.dispatcher.outbox.windows[1], _comm().engine
        until(lambda: window.unconfirmed < 2 << 20, engine.look)
    dist.barrier()
    end()


# ---------------------------------------------------------------------- the end


def killed_in_a_stream(victim: int, sends: bool) -> tuple[str, int] | None:
    """Kill a rank in the middle of long messages; the others must hear of it."""
    rank, size = begin()
    dist.barrier()
    array = np.ones(40 << 20, np.uint8)
    if rank == victim:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
    try:
        while True:
            if (rank == victim) == sends:
                wait_for([dist.isend(array, peer) for peer in range(size) if peer != rank])
            else:
                dist.recv(array, (rank + 1) % size if rank == victim else victim)
    except dist.DistError as error:
        return type(error).__name__, getattr(error, "rank", -1)


def messages_outlive_their_sender() -> None:
    """Leave while messages lie in the ring, some of them around its end."""
    rank, _ = begin()
    board = _comm().board
    if rank == 0:
        for i in range(12):
            dist.send(_pattern(0, i, 100 * i).copy(), 1)
        wait_for([dist.isend(_pattern(0, i, 90_000).copy(), 1, tag=1) for i in range(8)])
    elif rank == 1:
        until(lambda: board.has_left(0))
        for i, tag, nbytes in [*((i, 0, 100 * i) for i in range(12)), *((i, 1, 90_000) for i in range(8))]:
            room = np.zeros(nbytes, np.uint8)
            dist.recv(room, 0, tag=tag)
            _check(room, (0, i, tag, nbytes))
    end()


def answered_through_a_full_ring() -> None:
    """Receive what was offered while there is no room for the receipt, and then only compute."""
    rank, _ = begin()
    dist.barrier()
    store = dist.group.WORLD.get_group_store()
    array = np.full(400_000, 7, np.uint8)
    if rank == 0:
        pipe = _comm().engine.peers[1].connection
        words, tail = _comm().board._words, _comm().board.place(1).out // 8 + _TAIL
        while left := pipe.rings.capacity - (pipe.rings.head - words[tail]):
            dist.send(np.zeros(min(left - 32, pipe.eager_nbytes & -32), np.uint8), 1, tag=1)
        store.set("full", "")
        room = np.empty_like(array)
        dist.recv(room, 1)
        assert (room == 7).all()
        store.get("answered", timeout=20)
    elif rank == 1:
        store.get("full", timeout=20)
        dist.isend(array, 0).wait()
        store.set("answered", "")
    dist.barrier()
    end()


def asked_for_after_the_abort(rounds: int) -> list[str]:
    """Give the group up while the other asks for what was offered; nothing may come of it but the error."""
    return [_asked_for_after_one() for _ in range(rounds)]


def _asked_for_after_one() -> str:
    rank, _ = begin()
    dist.barrier()
    engine, array = _comm().engine, np.zeros(400_000, np.uint8)
    if rank == 0:
        with engine.lock:
            engine.progress_lock.callers += 1  # nobody takes in what comes until the group is given up
        until(lambda: not engine.progress_lock.owner, lambda: (engine.loop.wake(), time.sleep(0.0005)))
        work = dist.isend(array, 1)
        until(engine.peers[1].connection.has_news)
        dist.group.WORLD.abort("on purpose")
        with engine.lock:
            engine.progress_lock.callers -= 1
    else:
        work = dist.irecv(array, 0) if rank == 1 else None
    found = end_of(dist.barrier if work is None else work.wait)
    dist.destroy_process_group()
    return found


def given_up_while_reading() -> str:
    """Give the group up while a sender's memory is read, which then fails: the receive must end all the same."""
    rank, _ = begin()
    array = np.zeros(400_000, np.uint8)
    dist.barrier()
    if rank == 1:
        read = peer_memory.read

        def failing(*_: Any) -> bool:
            dist.group.WORLD.abort("on purpose")
            return False

        peer_memory.read = failing
        found = end_of(lambda: dist.recv(array, 0, timeout=5))
        peer_memory.read = read
    else:
        found = end_of(dist.barrier if rank else lambda: dist.isend(array, 1).wait())
    dist.destroy_process_group()
    return found


def _resident_nbytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _boards() -> int:
    with open("/proc/self/maps", encoding="ascii") as file:
        return sum("rankwise-board" in line for line in file)


def cycles(count: int) -> tuple[int, int, int]:
    """Return by how much descriptors, maps of boards and memory have grown over many groups that were used."""
    before = None
    for turn in range(count):
        rank, size = begin()
        array = np.ones(200_000)
        dist.all_reduce(array)
        dist.all_reduce(array[:5])
        around(array, np.empty_like(array))
        dist.send(array[:2], (rank + 1) % size)
        dist.recv(array[:2], (rank - 1) % size)
        end()
        if turn == count // 4:
            before = _kept()
    return tuple(a - b for a, b in zip(_kept(), before, strict=True))


def _kept() -> tuple[int, int, int]:
    """Return how many descriptors, boards and bytes there are once the thread that looks after idle groups has gone."""
    until(lambda: all(thread.name != "rankwise gloo idle" for thread in threading.enumerate()))
    gc.collect()
    return len(_descriptors()), _boards(), _resident_nbytes()
