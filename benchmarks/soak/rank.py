"""One rank of a program: comes by the places in order, begins the steps, and finishes what is due."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from random import Random
from typing import Any

import rankwise as dist
from rankwise.groups.process_group import ProcessGroup
from soak import collectives, ends, messages, threads
from soak.program import Program, Step
from soak.waiting import wait

#: How far behind the last step something may be due.
_BEHIND = 20


def perform(program: Program, rank: int, timeout_s: float) -> None:
    """Run a program as one of its ranks, in a world that has the pool's processes."""
    Rank(program, rank, timeout_s).run()


class Rank:
    """One rank's side of a program.

    Attributes:
        program: The program.
        roll: What only this rank decides: layouts, the order and the ways of waiting.
        timeout_s: The time-out of its groups.
    """

    def __init__(self, program: Program, rank: int, timeout_s: float) -> None:
        self.program, self.timeout_s = program, timeout_s
        self.roll = Random(f"{program.seed} on {rank}")
        self._rank = rank
        self._first: dict[int, list[Any]] = defaultdict(list)
        self._due: dict[int, list[Any]] = defaultdict(list)
        self._groups = [self.new_group(members) for members in program.groups]

    def run(self) -> None:
        """Do all steps."""
        steps = {step.at: step for step in self.program.steps}
        for at in range(max(steps, default=0) + _BEHIND):
            for begin in self._first.pop(at, ()):
                begin()
            if at in steps and not self._begin(steps[at]):
                return
            finishes = self._due.pop(at, [])
            self.roll.shuffle(finishes)
            for finish in finishes:
                finish()
        for group in reversed(self._groups):
            if group is not None:
                dist.destroy_process_group(group)

    def first(self, step: Step, at: int, call: Any) -> None:
        """Call something when this rank comes to a place, before the step there: receives keep their order."""
        self._first[at].append(partial(_within, step, call))

    def finish(self, step: Step, at: int, call: Any) -> None:
        """Call something when this rank comes to a place, after the step there, in any order."""
        self._due[at].append(partial(_within, step, call))

    def wait(self, work: Any) -> None:
        """Wait for a work in one of the ways there are."""
        wait(work, self.roll, self.timeout_s)

    def new_group(self, ranks: tuple[int, ...]) -> ProcessGroup | None:
        """Make a group of ranks of the program; None on a rank that is not in it."""
        if self._rank not in ranks:
            return None
        members = [self.program.members[rank] for rank in ranks]
        group = dist.new_group(members, self.timeout_s, use_local_synchronization=True, sort_ranks=False)
        assert isinstance(group, ProcessGroup)
        return group

    def _begin(self, step: Step) -> bool:
        """Begin a step, and tell whether the program goes on."""
        group = self._groups[step.group]
        if group is not None:
            _within(step, partial(_KINDS[step.kind], self, step, group))
        return step.kind != "death"


def _collective(rank: Rank, step: Step, group: ProcessGroup) -> None:
    async_op = step.what["until"] > step.at or rank.roll.random() < 0.3
    work, check = collectives.begin(step.at, group, step.what, rank.roll, async_op)

    def finish() -> None:
        if work is not None:
            rank.wait(work)
        check()

    rank.finish(step, step.what["until"], finish)


_KINDS: dict[str, Any] = {
    "collective": _collective,
    "messages": messages.begin,
    "anyone": messages.from_anyone,
    "threads": threads.run,
    "farewell": ends.farewell,
    "death": ends.death,
}


def _within(step: Step, call: Any) -> None:
    """Say in an error which step it comes from."""
    try:
        call()
    except Exception as error:
        # In the traceback that is brought home; the arguments of some errors are more than their text.
        if hasattr(error, "add_note"):
            error.add_note(f"in step {step.at}, {step.kind}")
        raise
