"""The board: memory that all ranks of a group on one machine share, to agree on a call and to pass small data.

Each rank has two places for its turn number and its record, which only it writes, and two areas for data. A rank writes
data and record, then its turn number; when it has seen the same number from all others, their records and data are
there to be read. The places alternate between turns, and areas between uses: when a place is written again, every rank
has meanwhile posted a later turn, which it does after it has read.
"""

from __future__ import annotations

import fcntl
import functools
import mmap
import operator
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from rankwise.backends import (
    COMMON,
    IN_PLACE,
    PLACES,
    Array,
    Deadline,
    as_bytes,
)
from rankwise.backends import compiled_parts as native
from rankwise_gloo_tcp.machine import futex, peer_memory
from rankwise_gloo_tcp.transport.rings import Bell, Place, Rings, Sleep, make_rings, ring_nbytes

#: Added to the longest part that a rank tells of, where there are parts that are copied from its memory.
FETCHES = 1 << 62
#: From which length on a part had better be copied by its receiver alone than by both ends through the board: one pass
#: instead of two, for a call of the kernel and one more meeting. What is shorter stays in the caches, where two passes
#: of two processors take less time than the kernel needs to copy what another processor has just written.
FETCH_FROM_NBYTES = 2 << 20
#: Where ranks share processors, what all of them write and read is in fewer caches; and where more than so many read
#: one rank's memory at the same time, they wait for each other in the kernel.
_SHARED_FETCH_FROM_NBYTES, _FEW_AT_ONCE, _MANY_FETCH_FROM_NBYTES = 512 << 10, 4, 8 << 20
#: Where an owner that has nothing else to do writes to the one receiver's memory as well: both copy half of it.
_TOGETHER_FROM_NBYTES = 512 << 10

#: Eight words: the number of the call, its digest, what follows, and the turn: they come in one line of the cache.
_RECORD_STRIDE = 64
_SEQUENCE, _DIGEST, _COUNT, _SENT, _RECEIVED, _LONGEST, _TURN = range(7)
_MASK = (1 << 64) - 1
_CONTROL_STRIDE = 128
#: Words of a rank's control block: three of an array that a compiled rank copies together with another; whether and how
#: it has gone, whether it sleeps until a pipe has news, and on which processor it runs, as compiled ranks say.
_COPY, _GONE, _ASLEEP, _RUNS_ON = 0, 9, 10, 11
_IN_GOOD_ORDER, _GIVING_UP, _WITH_PROCESS = 1, 2, 3
#: Words of the board: who has given the group up; for which turn somebody sleeps, by parity; and up to which turn all
#: have come.
_GIVEN_UP, _SLEEPERS, _GO = 0, 4, 6
_PAGE = 4096
#: That first word is 1 more than the rank that has given the group up. Why is in a page of that rank's own, as
#: several may do so at the same time: the length, and the text.
_WHY_AT = 8
#: The size of an area, and of a slot of it at the most: small enough for the cache where there is a processor for each
#: rank; elsewhere larger, as each meeting costs the processors' change of hands.
_AREA_NBYTES, _SLOT_NBYTES = 512 << 10, 256 << 10
_SHARED_AREA_NBYTES, _SHARED_SLOT_NBYTES = 2 << 20, 512 << 10
#: All areas together, since each rank has all of them in its memory in the end; and the least for one.
_ALL_AREAS_NBYTES, _LEAST_AREA_NBYTES = 48 << 20, 64 << 10
_ALIGN = 64

_SEALS = ("F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_SEAL")

#: How long a wait looks at the memory before it sleeps. It falls by half each time that was in vain, as when the ranks
#: are not in step or others want the processor, and doubles when it was not.
_SPIN_S, _LEAST_SPIN_S = 100e-6, 15e-6
#: How often it looks before it looks at the clock too, or lets others have the processor.
_LOOKS, _ONE_LOOK = range(20), range(1)
#: Where ranks share processors: the one that is waited for may be next in line. More than a few of these cost whole
#: time slices as soon as other programs run.
_YIELDS = 2
#: How long a wait sleeps until it looks around, at first and when it has taken two seconds. Who brings news wakes
#: it: the looks are for what was told between a look and the sleep. Of more ranks than so many each looks as much more
#: seldom at first, as all of them want the processors meanwhile.
_SLICE_S, _LONG_SLICE_S, _FEW = 0.02, 0.5, 64

_fence = futex.lock


def available() -> bool:
    """Tell whether this system has what a board needs."""
    fenced = futex.available() or native.module() is not None
    return hasattr(os, "memfd_create") and all(hasattr(fcntl, seal) for seal in _SEALS) and fenced


def _area_nbytes(size: int, may_spin: bool) -> int:
    share = max(_ALL_AREAS_NBYTES // (2 * size) & -_PAGE, _LEAST_AREA_NBYTES)
    return min(share, _AREA_NBYTES if may_spin else _SHARED_AREA_NBYTES)


def least_area_nbytes(size: int) -> int:
    """Return how much an area of a board of so many ranks has at least, whether they share processors or not."""
    return min(_area_nbytes(size, may_spin) for may_spin in (False, True))


def fetch_from_nbytes(may_spin: bool, at_once: int = 0, compiled: bool = False) -> int:
    """Return from which length on a part is copied from its owner's memory, where that may be read.

    Args:
        may_spin: Whether there is a processor for each rank.
        at_once: How many ranks read it at the same time; 0 where each rank begins with another part.
        compiled: Whether all ranks have compiled parts.
    """
    if at_once == 1 and may_spin and compiled:
        return min(FETCH_FROM_NBYTES, _TOGETHER_FROM_NBYTES)
    if at_once > _FEW_AT_ONCE:
        return _MANY_FETCH_FROM_NBYTES
    return FETCH_FROM_NBYTES if may_spin or at_once else min(FETCH_FROM_NBYTES, _SHARED_FETCH_FROM_NBYTES)


def _offsets(size: int, area_nbytes: int) -> tuple[int, int, int, int, int]:
    """Return where records, areas, rings and notices begin, and where all ends."""
    records = _PAGE + size * _CONTROL_STRIDE
    data = -(-(records + 2 * size * _RECORD_STRIDE) // _PAGE) * _PAGE
    rings = data + 2 * size * area_nbytes
    notices = -(-(rings + size * size * ring_nbytes(size)) // _PAGE) * _PAGE
    return records, data, rings, notices, notices + size * _PAGE


def create(size: int, may_spin: bool) -> int:
    """Return the descriptor of a new board, whose size nobody can change; its pages take memory when they are used."""
    # opens: the board and the rings, memory that the ranks of a host share
    # reached by: processes of this user, and root, through /proc; other ranks are handed it over a Unix socket
    # guarded by: no name; its size is sealed; handed over after the handshake alone; what is read there is checked
    # proved by: tests/plugins/native/test_hostile.py
    descriptor = os.memfd_create("rankwise-board", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, _offsets(size, _area_nbytes(size, may_spin))[-1])
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class Layout(NamedTuple):
    """Where what lies on one rank's view of a board, for compiled parts.

    Attributes:
        rank: This rank.
        size: Number of ranks.
        control: Where the ranks' control blocks begin.
        control_stride: How far they are apart.
        records: Where the records begin.
        data: Where the areas begin.
        area_nbytes: The size of each.
        most_nbytes: The size of a slot at the most.
    """

    rank: int
    size: int
    control: int
    control_stride: int
    records: int
    data: int
    area_nbytes: int
    most_nbytes: int


@functools.lru_cache(maxsize=64)
def _layout(rank: int, size: int, may_spin: bool) -> tuple[Layout, int, int, int]:
    """Return the layout of a board, where rings and notices begin, and where all ends."""
    area_nbytes = _area_nbytes(size, may_spin)
    records, data, rings, notices, total = _offsets(size, area_nbytes)
    most_nbytes = min(_SLOT_NBYTES if may_spin else _SHARED_SLOT_NBYTES, area_nbytes)
    layout = Layout(rank, size, _PAGE, _CONTROL_STRIDE, records, data, area_nbytes, most_nbytes)
    return layout, rings, notices, total


#: What compiled parts have in common with this module, which is the same in both.
SHARED = {
    "GIVEN_UP": _GIVEN_UP,
    "SLEEPERS": _SLEEPERS,
    "GO": _GO,
    "COPY": _COPY,
    "RUNS_ON": _RUNS_ON,
    "SEQUENCE": _SEQUENCE,
    "DIGEST": _DIGEST,
    "COUNT": _COUNT,
    "SENT": _SENT,
    "RECEIVED": _RECEIVED,
    "LONGEST": _LONGEST,
    "TURN": _TURN,
    "RECORD_STRIDE": _RECORD_STRIDE,
    "FETCHES": FETCHES,
    "COMMON": COMMON,
    "IN_PLACE": IN_PLACE,
    "PLACES": PLACES,
    "ALIGN": _ALIGN,
}


class _Places(NamedTuple):
    """Where the words of a board are that one rank looks at, the same for all boards of its kind.

    Attributes:
        controls: The control blocks, by rank.
        table: The records, by phase and rank.
        turns: The turns of all, by phase and rank.
        others: Those of the others, by phase.
        records: The records of the others, by phase.
    """

    controls: list[int]
    table: list[list[int]]
    turns: list[list[int]]
    others: list[list[int]]
    records: list[list[int]]


@functools.lru_cache(maxsize=64)
def _places(rank: int, layout: Layout) -> _Places:
    ranks = range(layout.size)
    controls = [(layout.control + peer * layout.control_stride) // 8 for peer in ranks]
    table = [[(layout.records + (2 * peer + phase) * _RECORD_STRIDE) // 8 for peer in ranks] for phase in range(2)]
    turns = [[at + _TURN for at in records] for records in table]
    others = [[each[(rank + k) % layout.size] for k in ranks[1:]] for each in turns]
    return _Places(controls, table, turns, others, [[r for p, r in enumerate(each) if p != rank] for each in table])


class Board:
    """One rank's view of its group's board.

    Args:
        descriptor: The memory; it can be closed afterwards.
        rank: This rank.
        size: Number of ranks.
        may_spin: Whether there is a processor for each rank.
        look: Called now and then while waiting; raises if the group has failed.
    """

    def __init__(self, descriptor: int, rank: int, size: int, may_spin: bool, look: Callable[[], object]) -> None:
        self.rank, self.size, self.may_spin = rank, size, may_spin
        #: Where control blocks, records and areas begin, for those who look for themselves.
        self.layout, self._rings, self._notices, self.nbytes = _layout(rank, size, may_spin)
        #: The size of each area, and of each slot at the most.
        self.area_nbytes = self.layout.area_nbytes
        self.most_nbytes = _SLOT_NBYTES if may_spin else _SHARED_SLOT_NBYTES
        self._memory = mmap.mmap(descriptor, self.nbytes)
        self._bytes = memoryview(self._memory)
        self._words = self._bytes.cast("Q")
        self._base = np.frombuffer(self._memory, np.uint8).ctypes.data
        self._controls, self._table, self._turns, self._others, self._places = _places(rank, self.layout)
        #: The processes of all ranks, if each may read the memory of the others.
        self.pids: tuple[int, ...] = ()
        self._all_compiled = False
        self._turn = self._parity = 0
        #: What stands in this rank's places for records, but for the numbers of the calls.
        self._told: list[tuple[int, ...] | None] = [None, None]
        self._spin_s = _SPIN_S if may_spin else 0.0
        self._slice_s = max(1.0, size / _FEW) * _SLICE_S
        #: For how long others were waited for in all, but for waits of a microsecond or so.
        self.waited_ns = 0
        self._look = look

    # ------------------------------------------------------------------ turns

    def exchange(self, sequence: int, about: tuple[int, int, int, int, int], deadline: Deadline) -> bool:
        """Tell which call this rank makes, and return whether all make the same.

        Args:
            sequence: The number of the call.
            about: What must be the same on all ranks, as a digest; how many elements this rank contributes; the sums of
                what it sends and receives, pair by pair; and the longest of what it sends.
            deadline: When to give up.

        Raises:
            TimeoutError: Some have not come; `late` tells who.
        """
        self._turn = turn = self._turn + 1
        phase = turn & 1
        table, words, digest = self._table[phase], self._words, about[0]
        at = table[self.rank]
        words[at] = sequence
        if about is not self._told[phase]:  # most calls are the same as before
            for field, word in enumerate(about, _DIGEST):
                words[at + field] = word
            self._told[phase] = about
        self._arrive(turn, deadline)
        for at in self._places[phase]:
            if words[at] != sequence or words[at + _DIGEST] != digest:
                return False
        return not (about[2] or about[3]) or not (sum(self._column(_SENT)) - sum(self._column(_RECEIVED))) & _MASK

    def counts(self) -> list[int]:
        """Return how many elements each rank contributes to the call that was compared last."""
        return self._column(_COUNT)

    def longest(self) -> int:
        """Return how many elements any rank sends to another through slots at the most in the call compared last.

        `FETCHES` is added where any rank has told it.
        """
        told = self._column(_LONGEST)
        return max(count & ~FETCHES for count in told) | (FETCHES if max(told) >= FETCHES else 0)

    def told_in_common(self) -> tuple[int, int]:
        """Return what was told of memory in common in the call compared last: the bits of all ranks, and of any."""
        told = self._column(_LONGEST)
        if max(told) < COMMON:
            return 0, 0
        return functools.reduce(operator.and_, told), functools.reduce(operator.or_, told)

    def told_places(self) -> list[int]:
        """Return which block of memory in common is whose, after `told_in_common`."""
        return [told & PLACES for told in self._column(_LONGEST)]

    def _column(self, field: int) -> list[int]:
        return [self._words[at + field] for at in self._table[self._turn & 1]]

    def meet(self, deadline: Deadline) -> None:
        """Return once everyone has come."""
        self._turn = turn = self._turn + 1
        self._arrive(turn, deadline)

    def late(self) -> list[int]:
        """Return the ranks that have not come to this turn."""
        turns, words, turn = self._turns[self._turn & 1], self._words, self._turn
        return [peer for peer, index in enumerate(turns) if words[index] < turn]

    def tell(self, numbers: Sequence[int], deadline: Deadline) -> list[list[int]]:
        """Tell everyone up to six numbers that are not negative, and return everyone's.

        They stand in the places for records, since these lie together: each area is a page of its own, and memory of
        hundreds of pages takes longer to map than a meeting takes.

        Raises:
            TimeoutError: Some have not come; `late` tells who.
        """
        assert len(numbers) <= _TURN
        self._turn = turn = self._turn + 1
        table, words = self._table[turn & 1], self._words
        self._told[turn & 1] = None
        at = table[self.rank]
        for field, number in enumerate(numbers):
            words[at + field] = number
        self._arrive(turn, deadline)
        return [words[at : at + len(numbers)].tolist() for at in table]

    def flip(self) -> int:
        """Return the parity of the areas to write before the next turn, and to read the others' of after it."""
        self._parity ^= 1
        return self._parity

    def slot_nbytes(self, slots: int) -> int:
        """Return the size of each of so many equal slots of an area, none larger than is good for the cache."""
        return min(self.area_nbytes // slots & -_ALIGN, self.most_nbytes)

    # ------------------------------------------------------------------ memory of other ranks

    def may_read(self, pids: Sequence[int], all_compiled: bool) -> None:
        """Learn that each rank may read the memory of all others, which are these processes.

        Args:
            pids: The processes of all ranks.
            all_compiled: Whether all of them have compiled parts.
        """
        self.pids, self._all_compiled = tuple(pids), all_compiled

    def fetch_nbytes(self, at_once: int = 0) -> int:
        """Return from which length on a part is copied from its owner's memory; 0 where that may not be read."""
        return fetch_from_nbytes(self.may_spin, at_once, self._all_compiled) if self.pids else 0

    def fetch(self, peer: int, address: int, target: Array) -> bool:
        """Copy from a rank's memory; tell whether that was possible."""
        return peer_memory.read(self.pids[peer], address, as_bytes(target))

    # ------------------------------------------------------------------ waiting

    def _arrive(self, turn: int, deadline: Deadline) -> None:
        """Come to a turn, and return once everyone has.

        The rank that finds all there wakes those that sleep, so that nobody is woken for each of the others. Of the
        last two to come at least one sees the other, as its own number is written before it looks.
        """
        words = self._words
        words[self._turns[turn & 1][self.rank]] = turn
        with _fence:
            pass
        for index in self._others[turn & 1]:
            if words[index] < turn:
                self._await(turn, deadline)
                return
        if words[_SLEEPERS + (turn & 1)] == turn:
            words[_GO] = turn
            futex.wake(self._base + 8 * _GO)

    def _await(self, turn: int, deadline: Deadline) -> None:
        words, spin_s = self._words, self._spin_s
        looks, yields = (_LOOKS, 0) if spin_s else (_ONE_LOOK, _YIELDS)
        began = now = monotonic()
        # The last rank to come is on everybody's way: nothing is done between the look that finds it and the return.
        for index in self._others[turn & 1]:
            while words[index] < turn:
                for _ in looks:
                    if words[index] >= turn:
                        break
                else:
                    if yields:
                        yields -= 1
                        os.sched_yield()
                    elif (now := monotonic()) >= began + spin_s:
                        self._spin_s = max(spin_s / 2, _LEAST_SPIN_S) if spin_s else 0.0
                        self._sleep(turn, deadline)
                        self.waited_ns += int((monotonic() - began) * 1e9)
                        return
        if not spin_s:
            now = monotonic()
        elif spin_s < _SPIN_S:
            self._spin_s = min(2 * spin_s, _SPIN_S)
        self.waited_ns += int((now - began) * 1e9)

    def _sleep(self, turn: int, deadline: Deadline) -> None:
        words, began = self._words, monotonic()
        while True:
            found = words[_GO]
            words[_SLEEPERS + (turn & 1)] = turn
            futex.fence()
            if found >= turn or not self.late():
                return
            futex.wait(self._base + 8 * _GO, found, self.slice_s(began, deadline))
            if words[_GO] >= turn or not self.late():
                return
            self._look()
            if deadline.expired():
                raise TimeoutError

    def slice_s(self, began: float, deadline: Deadline) -> float:
        """Return how long a wait that began then may sleep until it looks around."""
        return min(max(self._slice_s, (monotonic() - began) / 4), _LONG_SLICE_S, deadline.remaining())

    def _wake(self) -> None:
        futex.wake(self._base + 8 * _GO)

    def stir(self) -> None:
        """Have all who sleep here look around."""
        self._wake()

    def areas(self) -> list[list[Array]]:
        """Return where data is written, by parity and rank, in views that each call makes."""
        whole, layout = np.frombuffer(self._memory, np.uint8), self.layout
        starts = [
            [layout.data + (2 * rank + area) * self.area_nbytes for rank in range(self.size)] for area in range(2)
        ]
        return [[whole[start : start + self.area_nbytes] for start in each] for each in starts]

    # ------------------------------------------------------------------ pipes

    def place(self, peer: int) -> Place:
        """Return where the rings to a peer and from it are."""
        nbytes = ring_nbytes(self.size)
        out = self._rings + (self.rank * self.size + peer) * nbytes
        into = self._rings + (peer * self.size + self.rank) * nbytes
        return Place(out, into, nbytes, 8 * (self._controls[peer] + _ASLEEP))

    def rings(self, peer: int, bell: Bell) -> Rings:
        """Return the rings to a peer and from it; `bell` wakes it."""
        return make_rings(self._memory, self.place(peer), bell)

    def sleep(self) -> Sleep:
        """Return where this rank says that it sleeps."""
        return Sleep(self._words, self._controls[self.rank] + _ASLEEP)

    # ------------------------------------------------------------------ the end

    def leave(self, process_ends: bool = False, words: str = "") -> None:
        """Tell the others that this rank goes in good order, or as its process ends, by which exception."""
        if process_ends:
            self._write(words.encode())
        futex.fence()  # after all that it has sent
        self._words[self._controls[self.rank] + _GONE] = _WITH_PROCESS if process_ends else _IN_GOOD_ORDER
        self._wake()

    def has_left(self, peer: int) -> bool:
        """Tell whether a rank has gone in good order."""
        return bool(self._words[self._controls[peer] + _GONE] in (_IN_GOOD_ORDER, _WITH_PROCESS))

    def parting(self, peer: int) -> tuple[bool, str] | None:
        """Return of a rank that has gone in good order whether its process ended, and by which exception; else None."""
        state = self._words[self._controls[peer] + _GONE]
        futex.fence()  # the words were written before
        if state == _WITH_PROCESS:
            return True, self._read(peer).decode(errors="replace")
        return (False, "") if state == _IN_GOOD_ORDER else None

    def give_up(self, text: bytes) -> None:
        """Tell everyone that the group is given up, and wake them; of the ranks that say so one is named."""
        if not self._words[_GIVEN_UP]:
            self._write(text)
            futex.fence()
            self._words[_GIVEN_UP] = self.rank + 1
        self._words[self._controls[self.rank] + _GONE] = _GIVING_UP
        self._wake()

    def given_up(self) -> tuple[int, bytes] | None:
        """Return who has given the group up, and the text."""
        if not self._words[_GIVEN_UP]:
            return None
        futex.fence()  # the text was written before
        sender = min(int(self._words[_GIVEN_UP]), self.size) - 1
        return sender, self._read(sender)

    def _write(self, text: bytes) -> None:
        """Write on this rank's page why it goes."""
        at = self._notices + self.rank * _PAGE
        self._bytes[at + _WHY_AT : at + _WHY_AT + len(text)] = text
        self._words[at // 8] = len(text)

    def _read(self, peer: int) -> bytes:
        """Return what stands on a rank's page."""
        at = self._notices + peer * _PAGE
        length = min(self._words[at // 8], _PAGE - _WHY_AT)
        return bytes(self._bytes[at + _WHY_AT : at + _WHY_AT + length])

    def has_given_up(self, peer: int) -> bool:
        """Tell whether a rank has given the group up, be it not the one that is heard."""
        return bool(self._words[self._controls[peer] + _GONE] == _GIVING_UP)

    def quitters(self) -> tuple[list[int], bytes] | None:
        """Return all who have given the group up, and the text of the one that is heard."""
        said = self.given_up()
        return said and ([peer for peer in range(self.size) if self.has_given_up(peer)], said[1])

    def close(self) -> None:
        """Give the memory back."""
        empty: Any = None
        self._words.release()
        self._bytes.release()
        memory, self._memory = self._memory, empty
        with suppress(BufferError):  # an array of it is still alive somewhere, and closes it when it goes
            memory.close()
