"""Several threads of each rank at the same time: each has tags and a group of its own."""

from __future__ import annotations

import threading
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from random import Random
from typing import TYPE_CHECKING, Any

import rankwise as dist
from rankwise.groups.process_group import ProcessGroup
from soak import collectives
from soak.arrays import Room, lay_out
from soak.messages import TAGS
from soak.program import Step
from soak.values import dtype_of, part

if TYPE_CHECKING:
    from soak.rank import Rank

_FIRST_TAG = 8


def run(rank: Rank, step: Step, group: ProcessGroup) -> None:
    """Run the lanes of a step, and wait for all."""
    members = rank.program.groups[step.group]
    numbers = range(len(step.what["lanes"]))
    lanes = [_Lane(number, step, group, rank.new_group(members), rank.roll) for number in numbers]
    ended: SimpleQueue[BaseException | None] = SimpleQueue()
    for lane in lanes:
        serve = partial(copy_context().run, lane.serve, ended)
        threading.Thread(target=serve, daemon=True).start()
    for _ in lanes:
        try:
            error = ended.get(timeout=2 * rank.timeout_s)
        except Empty:
            raise AssertionError("threads stand still") from None
        if error is not None:
            raise error
    for lane in lanes:
        dist.destroy_process_group(lane.own)


class _Lane:
    def __init__(self, number: int, step: Step, group: ProcessGroup, own: Any, roll: Random) -> None:
        self.number, self.step, self.group, self.own = number, step, group, own
        self.roll = Random(roll.random())

    def serve(self, ended: SimpleQueue[BaseException | None]) -> None:
        try:
            for turn, (kind, dtype, count) in enumerate(self.step.what["lanes"][self.number]):
                (self._collective if kind == "collective" else self._exchange)(turn, dtype, count)
            ended.put(None)
        except BaseException as error:  # it is raised by who waits
            ended.put(error)

    def _collective(self, turn: int, dtype: str, count: int) -> None:
        op, root = "all_gather" if turn % 2 else "broadcast", turn % dist.get_world_size(self.own)
        what = {"op": op, "dtype": dtype, "count": count, "root": root}
        _, check = collectives.begin(self.step.at + self.number, self.own, what, self.roll, False)
        check()

    def _exchange(self, turn: int, dtype: str, count: int) -> None:
        me, size, at = dist.get_rank(self.group), dist.get_world_size(self.group), self.step.at
        terms: dict[str, Any] = {"group": self.group, "tag": TAGS * at + _FIRST_TAG + self.number}
        right, left = (me + 1) % size, (me - 1) % size
        room = Room(dtype_of(dtype), count, self.roll)
        work = dist.isend(lay_out(part(dtype, count, at, self.number, me), 0, self.roll), group_dst=right, **terms)
        receive = dist.irecv(room.array, group_src=left, **terms)
        for begun in (receive, work):
            assert begun is not None
            begun.wait()
        room.check(part(dtype, count, at, self.number, left), f"thread {self.number}, turn {turn}: {count} of {dtype}")
