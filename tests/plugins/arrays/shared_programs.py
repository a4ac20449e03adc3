"""What ranks run with shared arrays."""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from tests import far_away

import rankwise as dist

DTYPES = ("u1", "<i8", ">f4", "f8", "c16", "?", "S5", "U2", "M8[s]", "f2", [("at", "<i4"), ("value", "f8", (2,))], "V3")
MAPPED = "/memfd:rankwise-shared"


def mapped() -> int:
    """Return how many pieces of shared arrays' memory this process sees."""
    gc.collect()
    with open("/proc/self/maps") as file:
        return sum(MAPPED in line for line in file)


def descriptors() -> int:
    """Return how many descriptors of such memory this process has."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith(MAPPED)
    return found


def together(look: Callable[[], Any]) -> Any:
    """Look at this process while no rank, which may be a thread of it, does anything else."""
    dist.fence()
    found = look()
    dist.fence()
    return found


class Drawn:
    """One shared array as all ranks know it: whatever is drawn is the same everywhere.

    Args:
        seed: Of what is drawn.
        size: How many ranks there are.
    """

    def __init__(self, seed: int, size: int) -> None:
        self.chance = np.random.default_rng(seed)
        self.shape = tuple(int(n) for n in self.chance.integers(0, 7, self.chance.integers(0, 4)))
        if self.chance.random() < 0.1:
            self.shape = (int(self.chance.integers(1, 3)), 1_200_000)
        self.dtype = np.dtype(DTYPES[self.chance.integers(len(DTYPES))])
        self.copies = str(self.chance.choice(["rank", "host"]))
        self.src = int(self.chance.integers(size))

    def values(self) -> np.ndarray[Any, Any]:
        """Draw what an array holds."""
        nbytes = int(np.prod(self.shape)) * self.dtype.itemsize
        raw = self.chance.integers(0, 2 if self.dtype.kind == "b" else 100, nbytes, np.uint8)
        return np.ndarray(self.shape, self.dtype, raw.tobytes())

    def part(self) -> tuple[Any, ...]:
        """Draw a part of it: every element, some, or in the other order."""
        steps = self.chance.choice([1, 2, -1, -2], len(self.shape))
        return (..., *(slice(None, None, int(step)) for step in steps))


def same(got: Any, meant: Any) -> None:
    assert got.shape == meant.shape
    assert got.dtype == meant.dtype
    assert got.tobytes() == meant.tobytes()


def random_arrays(first: int, count: int) -> int:
    """Make, fill and look at arrays that are drawn at random; return how many."""
    far_away.pretend()
    me, size = dist.get_rank(), dist.get_world_size()
    for seed in range(first, first + count):
        drawn = Drawn(seed, size)
        (made if seed % 2 else filled)(drawn, me, size)
    assert together(mapped) == 0
    return count


def made(drawn: Drawn, me: int, size: int) -> None:
    array = dist.shared_zeros(drawn.shape, drawn.dtype, drawn.copies)
    assert not array.view(np.uint8).any() if array.ndim and array.size else True
    each, part = [drawn.values() for _ in range(size)], drawn.part()
    dist.fence()
    writes = drawn.copies == "rank" or me == array.peers[0]
    if writes:
        array[...] = each[me]
    dist.fence()
    for rank in array.peers:
        meant = each[rank if drawn.copies == "rank" else array.peers[0]]
        same(array.peer(rank), meant)
        same(array[part].peer(rank), meant[part])
        assert not array.peer(rank, writeable=False).flags.writeable
    behind = array.peers[(array.peers.index(me) + 1) % len(array.peers)]
    dist.fence()
    if writes and array.size:
        array.peer(behind)[...] = each[me]
        dist.fence()
        ahead = array.peers[array.peers.index(me) - 1]
        same(array, each[ahead if drawn.copies == "rank" else array.peers[0]])
    else:
        dist.fence()
    dist.fence()


def filled(drawn: Drawn, me: int, size: int) -> None:
    values, writeable = drawn.values(), bool(drawn.chance.integers(2))
    given = values.copy("F") if drawn.chance.integers(2) else values
    array = dist.shared_from(given if me == drawn.src else None, drawn.src, drawn.copies, writeable=writeable)
    same(array, values)
    assert array.flags.writeable == writeable
    for rank in array.peers:
        same(array.peer(rank), values)
        assert array.peer(rank).flags.writeable == writeable
    dist.fence()


def a_rank_dies(victim: int) -> tuple[list[str], list[float], str, int]:
    """Look at the array of a rank that has been killed."""
    names = set(os.listdir("/dev/shm"))
    array = dist.shared_empty(100_000)
    array[:] = dist.get_rank()
    dist.fence()
    view = array.peer(victim)
    dist.fence()
    if dist.get_rank() == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    with suppress(dist.PeerDiedError):
        dist.fence()
    found = [float(view.sum()), float(array.peer(victim)[-1]), float(array.sum())]
    del array
    assert mapped() == 1
    found.append(float(view[-1]))
    left = type(view).__name__
    del view
    return sorted(set(os.listdir("/dev/shm")) - names), found, left, mapped()


def rounds(count: int) -> tuple[int, int]:
    """Make and forget arrays; return how many descriptors and mappings more there are."""
    made_of = (lambda: dist.shared_empty(1000), lambda: dist.shared_from(np.ones(1000), writeable=False))
    for make in made_of:
        make()
    before = together(descriptors)
    for number in range(count):
        kept = made_of[number % 2]()[1:][::2]
        assert kept.peer(dist.get_rank()).sum() >= 0
    del kept
    return together(descriptors) - before, together(mapped)


def failures_leave_nothing(count: int) -> tuple[int, int]:
    """Fail to make arrays."""
    before = together(descriptors)
    for _ in range(count):
        with suppress(MemoryError):
            dist.shared_empty(1 << 50, "u1")
    return together(descriptors) - before, together(mapped)


def views_keep_it() -> list[int]:
    array = dist.shared_zeros((4, 4))
    seen = [mapped()]
    view = np.asarray(array)[1:, 2]
    del array
    seen.append(mapped())
    other = np.from_dlpack(view)
    del view
    seen.append(mapped())
    other[:] = 1
    raw = memoryview(other)
    del other
    seen.append(mapped())
    assert raw[0] == 1
    del raw
    seen.append(mapped())
    dist.fence()
    return seen


def after_a_fork() -> tuple[list[int], int]:
    """Write in a child of this process, which ends without a word."""
    array = dist.shared_zeros(2, int)
    child = os.fork()
    if child == 0:
        array[0] = 7
        array.peer(dist.get_rank())[1] = 8
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    dist.fence()
    return array.tolist(), mapped()


def within_limits() -> list[str]:
    """Ask for more than the limits of one rank allow."""
    told = []
    for limit, nbytes in ((resource.RLIMIT_FSIZE, 1 << 20), (resource.RLIMIT_AS, 0)):
        before = resource.getrlimit(limit)
        if dist.get_rank() == 0:
            resource.setrlimit(limit, (nbytes or 1 << 33, before[1]))
        try:
            dist.shared_empty(2 << 20 if nbytes else 9 << 30, "u1", copies="host")
        except MemoryError as error:
            told.append(str(error))
        resource.setrlimit(limit, before)
    assert mapped() == 0
    assert dist.functional.all_reduce(1) == dist.get_world_size()
    return told


def nobody_writes() -> list[str]:
    """Try to write to what is sealed: through the array, and through its memory."""
    array, told = dist.shared_from(np.arange(4), writeable=False), []
    for attempt in (lambda: array.__setitem__(0, 1), lambda: array.setflags(write=True), lambda: _write(array)):
        try:
            attempt()
        except (OSError, ValueError) as error:
            told.append(type(error).__name__)
    assert array.tolist() == [0, 1, 2, 3]
    return told


def _write(array: Any) -> None:
    """Open its memory anew, as any process of this user may, and map it so that it can be written to."""
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        with suppress(FileNotFoundError):
            if os.readlink(path).startswith(MAPPED):
                held = os.open(path, os.O_RDWR)
                try:
                    mmap.mmap(held, array.nbytes)[:1] = b"!"
                finally:
                    os.close(held)


def pickles() -> tuple[list[str], list[list[float]]]:
    """Return what is raised for an array, a part and a peer's, and what comes of the pickles of copies."""
    array, told = dist.shared_zeros(3), []
    for shared in (array, array[1:], array.peer(dist.get_rank())):
        try:
            pickle.dumps(shared)
        except TypeError as error:
            told.append(str(error))
    copies = (np.array(array), array.copy(), array + 0, np.sort(array))
    return told, [pickle.loads(pickle.dumps(copy)).tolist() for copy in copies]


def outside() -> list[Any]:
    """Make an array for some ranks."""
    group = dist.new_group([1, 2])
    try:
        array = dist.shared_from(np.arange(3) if dist.get_rank() == 2 else None, 2, group=group)
    except ValueError as error:
        return [str(error)]
    return [*array.tolist(), *array.peers]


def each_host_receives_once(nbytes: int) -> tuple[int, int, list[int]]:
    """Count what this rank sends and receives by messages for a shared array."""
    far_away.pretend()
    counted = {"isend": 0, "recv": 0}
    real = {name: getattr(dist, name) for name in counted}

    def counting(name: str) -> Any:
        def call(array: Any, *args: Any) -> Any:
            counted[name] += array.nbytes
            return real[name](array, *args)

        return call

    try:
        for name in counted:
            setattr(dist, name, counting(name))
        array = dist.shared_from(np.full(nbytes, 5, np.uint8) if dist.get_rank() == 1 else None, 1)
    finally:
        for name, call in real.items():
            setattr(dist, name, call)
    assert (array == 5).all()
    return counted["isend"], counted["recv"], array.peers


def by_other_ways() -> list[Any]:
    """Use a shared array as an array like any other; return the sum of its reduction, and of what type what is."""
    array = dist.shared_zeros(1000)
    array[:] = dist.get_rank()
    array += 1
    dist.all_reduce(array)
    found = [float(array.sum()), isinstance(array, np.ndarray), np.add(array, 1, out=array) is array]
    made = (array, np.add(array, 1), array.sum(), dist.functional.all_gather(array))
    dist.fence()
    return [*found, *(type(each).__name__ for each in made)]


def peers_that_are_none() -> list[str]:
    """Ask a copy, and for a rank that there is not, and return what is raised."""
    array, told = dist.shared_zeros(3), []
    for at, rank in ((array.copy(), 0), (array, dist.get_world_size())):
        try:
            at.peer(rank)
        except ValueError as error:
            told.append(type(error).__name__)
    return told


def gathered_in_place(counts: list[int]) -> None:
    """Gather into an array that the ranks of a host share: from its own parts, and from other arrays."""
    far_away.pretend()
    me, size = dist.get_rank(), dist.get_world_size()
    for count in counts:
        whole = dist.shared_zeros((size, count), "i4", copies="host")
        meant = np.repeat(np.arange(size, dtype="i4"), count).reshape(size, count)
        whole[me] = me
        dist.all_gather_single(whole, whole[me])
        np.testing.assert_array_equal(whole, meant)
        dist.fence()
        dist.all_gather_single(whole, np.full(count, me + 1, "i4"))
        np.testing.assert_array_equal(whole, meant + 1)
        dist.fence()
        other = np.empty_like(meant)  # one rank gathers elsewhere
        out = other if me == 0 else whole
        dist.all_gather_single(out, np.full(count, me + 2, "i4"))
        np.testing.assert_array_equal(out, meant + 2)
        dist.fence()


def broadcast_in_place(counts: list[int]) -> None:
    """Broadcast an array that the ranks of a host have in common, and one that only some of them have so."""
    far_away.pretend()
    me, size = dist.get_rank(), dist.get_world_size()
    for number, count in enumerate(counts):
        root = number % size
        common, own = dist.shared_zeros(count, "i4", copies="host"), np.zeros(count, "i4")
        if me == root:
            common[:] = number
        dist.broadcast(common, root)
        assert (common == number).all()
        dist.fence()
        array = own if me == 0 else common
        dist.fence()
        if me == root:
            array[:] = number + 1
        dist.broadcast(array, root)
        assert (array == number + 1).all()
        dist.fence()


def touched_by_collectives() -> list[int]:
    """Return how many MiB of an array in common this rank has touched: its own part, and after two collectives."""
    me, size, mib = dist.get_rank(), dist.get_world_size(), 1 << 20
    whole = dist.shared_zeros((size, mib), "u1", copies="host")
    whole[me] = me + 1
    seen = [_touched_mib()]
    dist.all_gather_single(whole, whole[me])
    seen.append(_touched_mib())
    dist.broadcast(whole, 0)
    seen.append(_touched_mib())
    assert (whole == np.arange(1, size + 1)[:, None]).all()
    seen.append(_touched_mib())
    dist.fence()
    return seen


def _touched_mib() -> int:
    found, here = 0, False
    with open("/proc/self/smaps") as file:
        for line in file:
            here = MAPPED in line if "-" in line.split()[0] else here
            found += int(line.split()[1]) if here and line.startswith("Rss:") else 0
    return round(found / 1024)


def reduced_in_place(counts: list[int]) -> None:
    """Reduce arrays in common, parts of them, and where only some ranks have such; the bits are always the same."""
    far_away.pretend()
    me, size = dist.get_rank(), dist.get_world_size()
    for number, count in enumerate(counts):
        for dtype, op in (("f4", "SUM"), ("f8", "AVG"), ("i8", "MAX"), ("f2", "SUM"), (">i4", "SUM")):
            given = [
                np.random.default_rng(10 * number + rank).normal(0, 9, count).astype(dtype) for rank in range(size)
            ]
            meant = given[me].copy()
            dist.all_reduce(meant, getattr(dist.ReduceOp, op))
            common = dist.shared_zeros(count + 5, dtype)
            parts = {"all": common[:count], "part": common[3 : 3 + count], "apart": common[me % 4 :][:count]}
            for part in parts.values():
                part[:] = given[me]
                dist.all_reduce(part, getattr(dist.ReduceOp, op))
                same(np.array(part), meant)
            some = given[me].copy() if me == size - 1 else common[:count]
            some[:] = given[me]
            dist.all_reduce(some, getattr(dist.ReduceOp, op))
            same(np.array(some), meant)
            dist.fence()


def unlike_reductions() -> list[str]:
    """Reduce arrays in common that differ, and then some that do not."""
    array, told = dist.shared_zeros(1_000_000, "f4"), []
    try:
        dist.all_reduce(array[: len(array) - dist.get_rank()])
    except dist.CollectiveMismatchError as error:
        told.append(str(error)[:40])
    assert not array.any()
    return told


def touched_by_a_reduction() -> list[int]:
    """Return how many MiB of arrays in common this rank has touched: its own, and after their reduction."""
    array = dist.shared_zeros(3 << 20, "u1")
    seen = [_touched_mib()]
    dist.all_reduce(array)
    return [*seen, _touched_mib()]


def nothing_is_kept() -> int:
    """Pass long arrays in every way that keeps them for a while, and return how many this process still sees."""
    far_away.pretend()
    me, size = dist.get_rank(), dist.get_world_size()
    for copies in ("rank", "host"):
        array = dist.shared_zeros(700_000, "i4", copies=copies)
        for root in range(size):
            dist.broadcast(array, root)
        work = dist.isend(array, (me + 1) % size)
        dist.recv(np.empty_like(array), (me - 1) % size)
        work.wait()
        del array, work
    return int(together(mapped))


def reductions_of_one_array() -> list[str]:
    """Reduce what all ranks of a host have in common in every way that is in place, and return what each raises."""
    table, told = dist.shared_zeros((3, 4), copies="host"), []
    rows = [table[0], np.asarray(table[1])]
    for reduce in (
        lambda: dist.all_reduce(table),
        lambda: dist.all_reduce(rows[1], async_op=True),
        lambda: dist.reduce(rows[0], 0),
        lambda: dist.reduce(table, dist.get_world_size() - 1, async_op=True),
        lambda: dist.all_reduce_coalesced(rows),
        lambda: dist.prepare("all_reduce", table)(),
    ):
        try:
            reduce()
        except ValueError as error:
            told.append(str(error))
    copy = dist.functional.all_reduce(table + 1)
    dist.reduce_scatter_single(table[dist.get_rank() % 3], np.ones(4 * dist.get_world_size()))
    assert (copy == dist.get_world_size()).all()
    return told
