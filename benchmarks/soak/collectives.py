"""One collective of a program: the call, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

import rankwise as dist
from rankwise.groups.process_group import ProcessGroup
from soak.arrays import Room, lay_out
from soak.values import dtype_of, factor, part, reduced

Check = Callable[[], None]
_PREMUL = "PREMUL_SUM"


def begin(salt: int, group: ProcessGroup, what: dict[str, Any], roll: Random, async_op: bool) -> tuple[Any, Check]:
    """Make the call; return its work, if it is asynchronous, and what checks the result."""
    return _Call(salt, group, what, roll, async_op).run()


class _Call:
    def __init__(self, salt: int, group: ProcessGroup, what: dict[str, Any], roll: Random, async_op: bool) -> None:
        self.salt, self.group, self.what, self.roll = salt, group, what, roll
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.dtype, self.count, self.root = dtype_of(what["dtype"]), what["count"], what["root"]
        self.is_root = self.rank == self.root
        self.terms: dict[str, Any] = {"group": group, "async_op": async_op}
        self.form = salt % 5
        self.name = f"{what['op']} {what}"

    def run(self) -> tuple[Any, Check]:
        found: tuple[Any, Check] = getattr(self, f"_{self.what['op']}")()
        return found

    def length(self, rank: int) -> int:
        """Return how long the part of a rank is."""
        uneven = self.what.get("uneven")
        return self.count if uneven is None else self.count * ((rank * 7 + uneven) % 4) // 3

    def values(self, source: int, to: int = 0, count: int | None = None) -> Any:
        return part(self.what["dtype"], self.count if count is None else count, self.salt, source, to)

    def room(self, count: int) -> Room:
        return Room(self.dtype, count, self.roll)

    def op(self) -> dist.ReduceOp:
        name = self.what["reduce"]
        found: dist.ReduceOp = (
            dist.ReduceOp.PREMUL_SUM(factor(self.rank)) if name == _PREMUL else getattr(dist.ReduceOp, name)
        )
        return found

    def result(self, to: int = 0, count: int | None = None) -> Any:
        return reduced(self.what["reduce"], [self.values(source, to, count) for source in range(self.size)])

    def _barrier(self) -> tuple[Any, Check]:
        return dist.barrier(**self.terms), lambda: None

    def _broadcast(self) -> tuple[Any, Check]:
        want = self.values(self.root)
        if self.is_root:
            given = lay_out(want, self.form, self.roll)
            return dist.broadcast(given, group_src=self.root, **self.terms), lambda: None
        room = self.room(self.count)
        work = dist.broadcast(room.shaped(self.form), group_src=self.root, **self.terms)
        return work, lambda: room.check(want, self.name)

    def _all_reduce(self) -> tuple[Any, Check]:
        room = self.room(self.count)
        room.array[:] = self.values(self.rank)
        work = dist.all_reduce(room.shaped(self.form), self.op(), **self.terms)
        return work, lambda: room.check(self.result(), self.name)

    def _reduce(self) -> tuple[Any, Check]:
        mine = self.values(self.rank)
        if not self.is_root:
            given = lay_out(mine, self.form, self.roll)
            return dist.reduce(given, op=self.op(), group_dst=self.root, **self.terms), lambda: None
        room = self.room(self.count)
        room.array[:] = mine
        work = dist.reduce(room.shaped(self.form), op=self.op(), group_dst=self.root, **self.terms)
        return work, lambda: room.check(self.result(), self.name)

    def _gathered(self) -> tuple[list[Any], Any, Check]:
        """Return where the parts go, what this rank gives, and what checks it."""
        lengths = [self.length(rank) for rank in range(self.size)]
        mine = self.values(self.rank, 0, lengths[self.rank])
        if "overlap" in self.what:
            whole = self.room(sum(lengths))
            slots = [whole.array[i * self.count : (i + 1) * self.count] for i in range(self.size)]
            given = slots[(self.rank + self.what["overlap"]) % self.size]
            given[:] = mine
            want = np.concatenate([self.values(r) for r in range(self.size)]).astype(self.dtype)
            return slots, given, lambda: whole.check(want, self.name)
        rooms = [self.room(length) for length in lengths]

        def check() -> None:
            for rank, room in enumerate(rooms):
                room.check(self.values(rank, 0, lengths[rank]), f"part {rank} of {self.name}")

        return [room.shaped(self.form) for room in rooms], lay_out(mine, self.form, self.roll), check

    def _all_gather(self) -> tuple[Any, Check]:
        parts, given, check = self._gathered()
        return dist.all_gather(parts, given, **self.terms), check

    def _gather(self) -> tuple[Any, Check]:
        parts, given, check = self._gathered()
        work = dist.gather(given, parts if self.is_root else None, group_dst=self.root, **self.terms)
        return work, check if self.is_root else lambda: None

    def _scatter(self) -> tuple[Any, Check]:
        lengths = [self.length(rank) for rank in range(self.size)]
        parts = [lay_out(self.values(self.root, to, n), self.form, self.roll) for to, n in enumerate(lengths)]
        room = self.room(lengths[self.rank])
        work = dist.scatter(room.shaped(self.form), parts if self.is_root else None, group_src=self.root, **self.terms)
        return work, lambda: room.check(self.values(self.root, self.rank, lengths[self.rank]), self.name)

    def _reduce_scatter(self) -> tuple[Any, Check]:
        lengths = [self.length(rank) for rank in range(self.size)]
        if "overlap" in self.what:
            whole = np.concatenate([self.values(self.rank, to) for to in range(self.size)]).astype(self.dtype)
            parts = [whole[i * self.count : (i + 1) * self.count] for i in range(self.size)]
            out = parts[(self.rank + self.what["overlap"]) % self.size]
            room = self.room(self.count)

            def check() -> None:
                room.array[:] = out
                room.check(self.result(self.rank), self.name)

            return dist.reduce_scatter(out, parts, self.op(), **self.terms), check
        parts = [lay_out(self.values(self.rank, to, n), self.form, self.roll) for to, n in enumerate(lengths)]
        room = self.room(lengths[self.rank])
        work = dist.reduce_scatter(room.shaped(self.form), parts, self.op(), **self.terms)
        return work, lambda: room.check(self.result(self.rank, lengths[self.rank]), self.name)

    def _all_to_all(self) -> tuple[Any, Check]:
        def length(source: int, to: int) -> int:
            return self.length(source + 2 * to)

        given = [self.values(self.rank, to, length(self.rank, to)) for to in range(self.size)]
        ins = [lay_out(values, self.form, self.roll) for values in given]
        rooms = [self.room(length(source, self.rank)) for source in range(self.size)]

        def check() -> None:
            for source, room in enumerate(rooms):
                want = self.values(source, self.rank, length(source, self.rank))
                room.check(want, f"part {source} of {self.name}")

        return dist.all_to_all([room.shaped(self.form) for room in rooms], ins, **self.terms), check
