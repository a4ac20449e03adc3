"""Ranks at an entry barrier, whose looks at shared memory come in any order: all make a call alike, or none makes it.

Each access to the memory is a step, and between two steps of one rank any others may come. What processors do beyond
that, holding stores back for a moment, the entry barrier leaves to the architecture and to `_SETTLE_S`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("mpi4py", reason="needs mpi4py and an MPI library from pip")

from rankwise_mpi.collectives import entry_barrier
from rankwise_mpi.collectives.cells import Cells
from rankwise_mpi.collectives.entry_barrier import EntryBarrier
from rankwise_mpi.collectives.marks import CallMark

PATIENCE_S = 20.0

#: Whether a call is asynchronous, and its word.
Call = tuple[bool, int]
BLOCKING, NONBLOCKING, MISMATCH, LEFT = "blocking", "nonblocking", "mismatch", "left"


class Steps:
    """Lets one thread at a time go on, and at each step draws which."""

    def __init__(self, seed: int, ranks: int) -> None:
        self._random = random.Random(seed)
        self._mays = [threading.Semaphore(0) for _ in range(ranks)]
        self._here = set(range(ranks))
        self._left = 20_000
        self._at_it = threading.local()
        self.error: BaseException | None = None

    def run(self, programs: list[Callable[[], None]]) -> None:
        """Run one program a rank, and raise what one of them raised."""
        threads = [threading.Thread(target=self._run, args=item, daemon=True) for item in enumerate(programs)]
        for thread in threads:
            thread.start()
        self._mays[0].release()
        for thread in threads:
            thread.join(PATIENCE_S)
        if self.error is not None:
            raise self.error
        assert not self._here, "stood still"

    def _run(self, rank: int, program: Callable[[], None]) -> None:
        self._mays[rank].acquire()
        self._at_it.rank = rank
        try:
            program()
        except BaseException as error:
            self.error = self.error or error
        self._here.discard(rank)
        if self._here:
            self._mays[min(self._here)].release()

    def sleep(self, seconds: float) -> None:
        """Stand in for `time.sleep`: let others take several steps."""
        for _ in range(4):
            self.step(self._at_it.rank, patience=True)

    def step(self, rank: int, patience: bool = False) -> None:
        """Let others come before what this rank does next; with patience, surely."""
        self._left -= 1
        if self._left < 0 or self.error is not None:
            raise TimeoutError("the ranks have taken too many steps")
        if not patience and self._random.random() < 0.6:
            return
        others = sorted(self._here - {rank}) if patience else sorted(self._here)
        following = self._random.choice(others or [rank])
        if following != rank:
            self._mays[following].release()
            self._mays[rank].acquire()


class Column:
    """A column of the cells as one rank sees it; each look is a step."""

    def __init__(self, words: list[int], step: Callable[[], None]) -> None:
        self._words, self._step = words, step

    def __len__(self) -> int:
        return len(self._words)

    def __getitem__(self, rank: int) -> int:
        self._step()
        return self._words[rank]

    def __setitem__(self, rank: int, word: int) -> None:
        self._step()
        self._words[rank] = word

    def __iter__(self) -> Iterator[int]:
        for rank in range(len(self._words)):
            yield self[rank]


class Rank:
    """One rank, which makes calls as `Issuing` does, and notes what became of each."""

    def __init__(self, rank: int, size: int, memory: dict[str, list[int]], steps: Steps) -> None:
        self._rank, self._steps = rank, steps

        def column(name: str) -> Column:
            return Column(memory.setdefault(name, [0] * size), lambda: steps.step(rank))

        cells = SimpleNamespace(
            attention=column("attention"),
            came=column("came"),
            states=column("states"),
            firsts=column("firsts"),
            lasts=column("lasts"),
            calls=(column("even"), column("odd")),
            balances=(column("even balances"), column("odd balances")),
        )
        comm: Any = SimpleNamespace(Iprobe=lambda source, tag: False)
        self.entry = EntryBarrier(cast(Cells, cells), rank, comm, 2)
        self.came_of: list[str] = []

    def run(self, calls: list[Call], gives_up_at: int, destroys: bool = False) -> None:
        for number, (asynchronous, word) in enumerate(calls, 1):
            if asynchronous:
                self.entry.bypass(number, number)
                self.came_of.append(NONBLOCKING)
                continue
            came_of = self._synchronous(number, mark(word), number == gives_up_at)
            self.came_of.append(came_of)
            if came_of in (MISMATCH, LEFT):
                return  # a group that goes on after a mismatch exchanges messages, in which all meet
        if destroys:
            self.entry.destroy(len(calls))

    def _synchronous(self, number: int, mark: CallMark, hurried: bool) -> str:
        entry = self.entry
        if entry.arrive(number, mark):
            entry.decided = number
            return BLOCKING
        while not entry.test():
            if hurried:
                if entry.leave():
                    return LEFT
                break
            self._steps.step(self._rank, patience=True)
        if entry.destroyed_by(number):
            assert entry.leave()
            return LEFT
        if entry.gone:
            return LEFT
        alike = entry.alike
        if alike and not entry.agreed(mark):
            return MISMATCH
        entry.decided = number
        return BLOCKING if alike else NONBLOCKING


def mark(word: int) -> CallMark:
    return CallMark(word, 0, False, cast(Any, None))


def outcomes(seed: int, calls: list[list[Call]], gives_up: dict[int, int]) -> list[list[str]]:
    """Run the calls of each rank, with steps in an order of this seed, and return what became of them."""
    memory: dict[str, list[int]] = {}
    steps = Steps(seed, len(calls))
    ranks = [Rank(rank, len(calls), memory, steps) for rank in range(len(calls))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entry_barrier, "sleep", steps.sleep)
        steps.run([partial(rank.run, calls[mine], gives_up.get(mine, 0), True) for mine, rank in enumerate(ranks)])
    return [rank.came_of for rank in ranks]


def assert_together(of: list[list[str]], seed: int) -> None:
    """Whatever became of a call became of it on all ranks that came to it, and who left left no one in the call."""
    for number, each in enumerate(zip(*of, strict=False), 1):
        kinds = set(each)
        assert len(kinds) == 1, f"seed {seed}, call {number}: {each}"


@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_make_a_call_alike(size):
    """Programs of synchronous and asynchronous calls, the same on all ranks but for which calls are asynchronous."""
    for seed in range(150):
        draw = random.Random(seed)
        in_step = draw.random() < 0.5
        calls: list[list[Call]] = [[] for _ in range(size)]
        for _ in range(8):
            word, all_asynchronous = draw.choice([7, 7, 9]), draw.random() < 0.3
            for mine in calls:
                mine.append((all_asynchronous if in_step else draw.random() < 0.3, word))
        of = outcomes(seed, calls, {})
        assert all(len(mine) == 8 for mine in of), f"seed {seed}: {of}"
        for number, each in enumerate(zip(*of, strict=True)):
            some = any(mine[number][0] for mine in calls)
            wanted = NONBLOCKING if some else BLOCKING
            assert set(each) == {wanted}, f"seed {seed}, call {number + 1}: {each}"


@pytest.mark.parametrize("size", [2, 3])
def test_a_call_that_differs_is_seen_by_all(size):
    for seed in range(120):
        draw = random.Random(seed)
        odd, at = draw.randrange(size), draw.randrange(5)
        calls: list[list[Call]] = [[(draw.random() < 0.2, 7)] * 5 for _ in range(size)]
        for rank, mine in enumerate(calls):
            mine[at] = (False, 9 if rank == odd else 7)
        of = outcomes(seed, calls, {})
        assert {mine[at] for mine in of} == {MISMATCH}, f"seed {seed}: {of}"
        assert_together(of, seed)


@pytest.mark.parametrize("size", [2, 3])
def test_who_leaves_leaves_nobody_in_the_call(size):
    for seed in range(120):
        draw = random.Random(seed)
        calls: list[list[Call]] = [[(False, 7)] * 4 for _ in range(size)]
        gives_up = {rank: draw.randrange(1, 5) for rank in range(size) if draw.random() < 0.5}
        assert_together(outcomes(seed, calls, gives_up), seed)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_who_destroys_the_group_keeps_nobody_waiting_and_takes_no_call_from_others(size):
    """Some ranks make fewer calls than others: all make each call of the shortest program, and nobody one after."""
    for seed in range(150):
        draw = random.Random(seed)
        calls: list[list[Call]] = [[(draw.random() < 0.2, 7)] * draw.randrange(1, 6) for _ in range(size)]
        made = min(map(len, calls))
        for mine, came_of in zip(calls, outcomes(seed, calls, {}), strict=True):
            assert LEFT not in came_of[:made], f"seed {seed}: {came_of}"
            synchronous = not mine[0][0]
            if len(mine) > made and synchronous:
                assert came_of[made:] == [LEFT], f"seed {seed}: {came_of}"
