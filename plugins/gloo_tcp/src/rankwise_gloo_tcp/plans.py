"""Collectives among the ranks of one machine: what each writes to its area before the calls are compared, and what it
does afterwards.

Small data goes through the areas of the board. Large data is read straight from the memory of the other processes
where the kernel permits that; where it does not, reductions go through the areas piece by piece, and what only moves
data goes by messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from rankwise.arrays import Array
from rankwise.deadline import Deadline
from rankwise.errors import DistBackendError
from rankwise.reduce_op import ReduceOp, accumulation_dtype
from rankwise_gloo_tcp import peer_memory
from rankwise_gloo_tcp.board import AREA_NBYTES

__all__ = ["Fellows", "Messages", "Plan", "Pull", "all_reduce", "reduce"]

#: Up to here everyone reads everything; the sum over all ranks stays within a processor's cache.
ONE_SHOT_NBYTES = 512 << 10
#: From here on it is cheaper to read memory directly than to copy in and out.
DIRECT_NBYTES = 2 << 20
#: How much is read and combined at a time, so that it is still in the cache when it is combined.
PIECE_NBYTES = 128 << 10
_ALIGN = 64
_INLINE, _DIRECT = 1, 2


class Fellows(Protocol):
    """What a plan needs of its communicator."""

    rank: int
    size: int
    pids: list[int]
    can_read: bool

    @property
    def scratch(self) -> Array:
        """Memory to read a piece into before it is combined."""

    def areas(self) -> list[Array]:
        """Return everyone's area for the next use."""

    def meet(self, deadline: Deadline) -> None:
        """Wait for everyone."""


class Plan:
    """One call's way through shared memory. It stands where the core expects the body of a collective."""

    def offer(self, us: Fellows) -> None:
        """Write what the others will want; nothing has been compared yet.

        Each call uses the areas once here, also one without data, so that ranks which disagree stay in step.
        """
        us.areas()

    def take(self, us: Fellows, counts: Callable[[], tuple[int, ...]], deadline: Deadline) -> None:
        """Finish, now that all have made the same call."""
        raise NotImplementedError

    def __call__(self, deadline: Deadline, counts: Sequence[int]) -> None:
        """Refuse: a plan needs its communicator, which calls `offer` and `take`."""
        raise NotImplementedError


class Messages(Plan):
    """A collective that goes by messages once the calls have been compared."""

    def __init__(self, body: Callable[[Deadline, Sequence[int]], None]) -> None:
        self.body = body

    def take(self, us: Fellows, counts: Callable[[], tuple[int, ...]], deadline: Deadline) -> None:
        self.body(deadline, counts())


def all_reduce(array: Array, op: ReduceOp, size: int, can_read: bool) -> Plan:
    """Return the plan of an all_reduce."""
    wide = accumulation_dtype(op.name, array.dtype)
    nbytes = array.size * wide.itemsize
    plain = wide == array.dtype and op.factor is None
    if nbytes <= AREA_NBYTES and nbytes * (size - 1) <= ONE_SHOT_NBYTES:
        return _OneShot(array, op, wide, plain)
    if can_read and plain and nbytes >= DIRECT_NBYTES:
        return _DirectTwoShot(array, op)
    return _TwoShot(array, op, wide)


def reduce(array: Array, op: ReduceOp, root: int, size: int) -> Plan | None:
    """Return the plan of a reduce, if there is one."""
    wide = accumulation_dtype(op.name, array.dtype)
    nbytes = array.size * wide.itemsize
    if nbytes <= AREA_NBYTES and nbytes * (size - 1) <= ONE_SHOT_NBYTES:
        return _OneShot(array, op, wide, wide == array.dtype and op.factor is None, root)
    return None


class _OneShot(Plan):
    """Everyone writes its array, and reduces those of all in the order of ranks."""

    def __init__(self, array: Array, op: ReduceOp, wide: np.dtype[np.generic], plain: bool, root: int = -1) -> None:
        self.array, self.op, self.wide, self.root = array, op, wide, root
        self.plain = plain and op.name != "AVG"
        self.nbytes = array.size * wide.itemsize
        self.areas: list[Array] = []

    def offer(self, us: Fellows) -> None:
        self.areas = us.areas()
        mine = self._view(us.rank)
        flat = self.array.reshape(-1)
        mine[...] = flat if self.op.factor is None else self.op.accumulator(self.array)

    def take(self, us: Fellows, counts: Callable[[], tuple[int, ...]], deadline: Deadline) -> None:
        if self.root not in (-1, us.rank):
            return
        op = self.op
        if self.plain:
            total = self.array.reshape(-1)
            if us.size == 2:
                op.combine(total, self._view(1 - us.rank), us.rank == 1)
                return
            if us.rank:
                total[...] = self._view(0)
        else:
            total = self._view(0).copy()
        for peer in range(1, us.size):
            op.combine(total, self._view(peer))
        if not self.plain:
            op.finish(total, self.array, us.size)

    def _view(self, peer: int) -> Array:
        return self.areas[peer][: self.nbytes].view(self.wide)


class _TwoShot(Plan):
    """Piece by piece: everyone writes, each reduces its share in place, everyone reads all shares."""

    def __init__(self, array: Array, op: ReduceOp, wide: np.dtype[np.generic]) -> None:
        self.array, self.op, self.wide = array, op, wide
        self.flat = array.reshape(-1)
        self.count = AREA_NBYTES // wide.itemsize
        self.areas: list[Array] = []

    def offer(self, us: Fellows) -> None:
        self._write(us, 0)

    def take(self, us: Fellows, counts: Callable[[], tuple[int, ...]], deadline: Deadline) -> None:
        for start in range(0, self.flat.size, self.count):
            if start:
                self._write(us, start)
                us.meet(deadline)
            count = min(self.count, self.flat.size - start)
            views = [area[: count * self.wide.itemsize].view(self.wide) for area in self.areas]
            cuts = [count * peer // us.size for peer in range(us.size + 1)]
            share = slice(cuts[us.rank], cuts[us.rank + 1])
            total = views[us.rank][share]
            for k in range(1, us.size):
                self.op.combine(total, views[(us.rank + k) % us.size][share])
            if self.op.name == "AVG":
                np.divide(total, us.size, out=total)
            us.meet(deadline)
            for k in range(us.size):
                peer = (us.rank + k) % us.size
                self.flat[start + cuts[peer] : start + cuts[peer + 1]] = views[peer][cuts[peer] : cuts[peer + 1]]

    def _write(self, us: Fellows, start: int) -> None:
        self.areas = us.areas()
        piece = self.flat[start : start + self.count]
        mine = self.areas[us.rank][: piece.size * self.wide.itemsize].view(self.wide)
        mine[...] = piece if self.op.factor is None else self.op.accumulator(piece)


class _DirectTwoShot(Plan):
    """Each reduces its share straight from the arrays of all, then reads the shares of the others."""

    def __init__(self, array: Array, op: ReduceOp) -> None:
        self.flat, self.op = array.reshape(-1), op
        self.areas: list[Array] = []

    def offer(self, us: Fellows) -> None:
        self.areas = us.areas()
        self.areas[us.rank][:8].view(np.uint64)[0] = self.flat.ctypes.data

    def take(self, us: Fellows, counts: Callable[[], tuple[int, ...]], deadline: Deadline) -> None:
        flat, itemsize = self.flat, self.flat.itemsize
        starts = [int(area[:8].view(np.uint64)[0]) for area in self.areas]
        cuts = [flat.size * peer // us.size for peer in range(us.size + 1)]
        scratch = us.scratch.view(flat.dtype)
        mine = flat.ctypes.data
        for begin in range(cuts[us.rank], cuts[us.rank + 1], scratch.size):
            piece = flat[begin : min(begin + scratch.size, cuts[us.rank + 1])]
            for k in range(1, us.size):
                peer = (us.rank + k) % us.size
                _fetch(us, peer, starts[peer] + begin * itemsize, scratch.ctypes.data, piece.nbytes)
                self.op.combine(piece, scratch[: piece.size])
            if self.op.name == "AVG":
                np.divide(piece, us.size, out=piece)
        us.meet(deadline)
        for k in range(1, us.size):
            peer = (us.rank + k) % us.size
            begin, nbytes = cuts[peer] * itemsize, (cuts[peer + 1] - cuts[peer]) * itemsize
            _fetch(us, peer, starts[peer] + begin, mine + begin, nbytes)
        us.meet(deadline)


class Pull(Plan):
    """Everyone offers an array to each other rank, and takes what it wants.

    Args:
        offered: What each rank may take from this one.
        wanted: Whom to take from, and where to put it.
        otherwise: What to do where that is impossible for want of room.
        op: If given, what is taken is combined into the only target instead, which `done` then gets.
        done: Called with the target at the end.
    """

    def __init__(
        self,
        offered: Sequence[Array | None],
        wanted: Sequence[tuple[int, Array]],
        otherwise: Callable[[Deadline, Sequence[int]], None],
        op: ReduceOp | None = None,
        done: Callable[[], None] | None = None,
    ) -> None:
        self.offered, self.wanted, self.otherwise, self.op, self.done = offered, wanted, otherwise, op, done
        self.areas: list[Array] = []

    def offer(self, us: Fellows) -> None:
        self.areas = us.areas()
        area, size = self.areas[us.rank], us.size
        table = area[: 8 * (size + 1)].view(np.uint64)
        different = {id(a): a for peer, a in enumerate(self.offered) if a is not None and peer != us.rank}
        at = -(-8 * (size + 1) // _ALIGN) * _ALIGN
        places = {}
        for key, array in different.items():
            places[key] = at
            at += -(-array.nbytes // _ALIGN) * _ALIGN
        if at <= AREA_NBYTES:
            table[size] = _INLINE
            for key, array in different.items():
                area[places[key] : places[key] + array.nbytes] = array.reshape(-1).view(np.uint8)
        elif us.can_read:
            table[size] = _DIRECT
            places = {key: array.ctypes.data for key, array in different.items()}
        else:
            table[size] = 0
            return
        for peer, offered in enumerate(self.offered):
            if offered is not None and peer != us.rank:
                table[peer] = places[id(offered)]

    def take(self, us: Fellows, counts: Callable[[], tuple[int, ...]], deadline: Deadline) -> None:
        tables = [area[: 8 * (us.size + 1)].view(np.uint64) for area in self.areas]
        modes = [int(table[us.size]) for table in tables]
        if 0 in modes:
            self.otherwise(deadline, counts())
            return
        for peer, target in self.wanted:
            place = int(tables[peer][us.rank])
            if peer != us.rank and target.size:
                if modes[peer] == _INLINE:
                    self._put(target, self.areas[peer][place : place + self._nbytes(target)])
                else:
                    self._read(us, peer, place, target)
        if _DIRECT in modes:
            us.meet(deadline)
        if self.done is not None:
            self.done()

    def _nbytes(self, target: Array) -> int:
        return int(target.size) * self._dtype(target).itemsize

    def _dtype(self, target: Array) -> np.dtype[np.generic]:
        """Return the dtype of what is offered: that of the target, unless it accumulates in a wider one."""
        if self.op is None:
            dtype: np.dtype[np.generic] = target.dtype
            return dtype
        return next(a.dtype for a in self.offered if a is not None)

    def _put(self, target: Array, raw: Array) -> None:
        content = raw.view(self._dtype(target))
        if self.op is None:
            target[...] = content.reshape(target.shape)
        else:
            self.op.combine(target, content)

    def _read(self, us: Fellows, peer: int, place: int, target: Array) -> None:
        if self.op is None:
            _fetch(us, peer, place, target.ctypes.data, target.nbytes)
            return
        scratch = us.scratch.view(self._dtype(target))
        for begin in range(0, target.size, scratch.size):
            piece = target[begin : begin + scratch.size]
            nbytes = piece.size * scratch.itemsize
            _fetch(us, peer, place + begin * scratch.itemsize, scratch.ctypes.data, nbytes)
            self.op.combine(piece, scratch[: piece.size])


def _fetch(us: Fellows, peer: int, source: int, to: int, nbytes: int) -> None:
    while nbytes:
        count = peer_memory.read_at(us.pids[peer], source, to, min(nbytes, 1 << 30))
        if count <= 0:
            raise DistBackendError(f"the memory of process {us.pids[peer]} (group rank {peer}) cannot be read any more")
        source, to, nbytes = source + count, to + count, nbytes - count
