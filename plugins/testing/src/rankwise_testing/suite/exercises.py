"""One exercise for each operation: what to call with which arrays, and what must be in them afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import rankwise as dist
from rankwise.kits import Array, ProcessGroup, Work
from rankwise_testing.suite import oracle
from rankwise_testing.suite.arrays import on_device, plain_name, same, sample

Call = Callable[..., Work | None]
Check = Callable[[], None]


@dataclass(frozen=True)
class Case:
    """One call to be made.

    Attributes:
        op: The operation.
        dtype: The dtype's name in the capability table.
        reduce: The reduce op's name, for a reduction.
        count: Number of elements of each part.
        root: Group rank of the root.
        salt: Makes the data of two calls differ.
    """

    op: str
    dtype: str = field(default_factory=plain_name)
    reduce: str | None = None
    count: int = 5
    root: int = 0
    salt: int = 0

    def __str__(self) -> str:
        what = self.op if self.reduce is None else f"{self.op}({self.reduce})"
        return f"{what} of {self.count} {self.dtype}, root {self.root}"


@dataclass(frozen=True)
class Exercise:
    """A call that is ready to be made: `call` takes `async_op` and `timeout`.

    `check` raises if the result is wrong, or an input was changed.
    """

    call: Call
    check: Check


def prepare(case: Case, group: ProcessGroup | None = None) -> Exercise:
    """Make the arrays of a case on this rank."""
    return EXERCISES[case.op](case, _Here(case, group))


def perform(case: Case, group: ProcessGroup | None = None) -> None:
    """Make the call of a case, and check what it has done."""
    exercise = prepare(case, group)
    exercise.call()
    exercise.check()


class _Here:
    """This rank's side of a case."""

    def __init__(self, case: Case, group: ProcessGroup | None) -> None:
        self.case, self.group = case, group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.is_root = self.rank == case.root

    def data(self, rank: int, to: int = 0) -> Any:
        """Return, on the host, what `rank` sends to `to`."""
        return sample(self.case.dtype, self.case.count, rank, self.case.salt + 5 * to)

    def blank(self) -> Array:
        """Return an array to be filled, whose content is not what any rank sends."""
        return on_device(sample(self.case.dtype, self.case.count, 77, self.case.salt + 3))

    def mine(self) -> Array:
        """Return this rank's contribution to a reduction."""
        return on_device(self._contribution(self.rank))

    def op(self) -> dist.ReduceOp:
        """Return the reduce op that this rank calls with."""
        return oracle.reduce_op(self.case.reduce or "SUM", self.rank)

    def reduced(self) -> Any:
        """Return the result of the reduction."""
        case = self.case
        return oracle.reduced(case.dtype, case.reduce or "SUM", case.count, self.size)

    def untouched(self) -> Any:
        """Return this rank's contribution as it was."""
        return self._contribution(self.rank)

    def _contribution(self, rank: int) -> Any:
        case = self.case
        return oracle.contribution(case.dtype, case.reduce or "SUM", case.count, rank, self.size)


def _broadcast(case: Case, here: _Here) -> Exercise:
    array = on_device(here.data(case.root)) if here.is_root else here.blank()
    return Exercise(
        lambda **terms: dist.broadcast(array, group=here.group, group_src=case.root, **terms),
        lambda: same(array, here.data(case.root)),
    )


def _all_reduce(case: Case, here: _Here) -> Exercise:
    array = here.mine()
    return Exercise(
        lambda **terms: dist.all_reduce(array, here.op(), group=here.group, **terms),
        lambda: same(array, here.reduced()),
    )


def _reduce(case: Case, here: _Here) -> Exercise:
    array = here.mine()
    return Exercise(
        lambda **terms: dist.reduce(array, op=here.op(), group=here.group, group_dst=case.root, **terms),
        lambda: same(array, here.reduced() if here.is_root else here.untouched()),
    )


def _all_gather(case: Case, here: _Here) -> Exercise:
    parts = [here.blank() for _ in range(here.size)]
    array = on_device(here.data(here.rank))
    return Exercise(
        lambda **terms: dist.all_gather(parts, array, group=here.group, **terms),
        lambda: _all_same([*parts, array], [here.data(rank) for rank in (*range(here.size), here.rank)]),
    )


def _gather(case: Case, here: _Here) -> Exercise:
    parts = [here.blank() for _ in range(here.size)] if here.is_root else []
    array = on_device(here.data(here.rank))
    given = parts if here.is_root else None
    return Exercise(
        lambda **terms: dist.gather(array, given, group=here.group, group_dst=case.root, **terms),
        lambda: _all_same([*parts, array], [here.data(rank) for rank in (*range(len(parts)), here.rank)]),
    )


def _scatter(case: Case, here: _Here) -> Exercise:
    parts = [on_device(here.data(case.root, to)) for to in range(here.size)] if here.is_root else []
    array, given = here.blank(), parts if here.is_root else None
    return Exercise(
        lambda **terms: dist.scatter(array, given, group=here.group, group_src=case.root, **terms),
        lambda: _all_same([array, *parts], [here.data(case.root, to) for to in (here.rank, *range(len(parts)))]),
    )


def _reduce_scatter(case: Case, here: _Here) -> Exercise:
    parts = [here.mine() for _ in range(here.size)]
    array = here.blank()
    # The parts keep their content; all are alike here, and the uneven tests have different ones.
    wanted = [here.untouched()] * here.size
    return Exercise(
        lambda **terms: dist.reduce_scatter(array, parts, here.op(), group=here.group, **terms),
        lambda: _all_same([array, *parts], [here.reduced(), *wanted]),
    )


def _all_to_all(case: Case, here: _Here) -> Exercise:
    ins = [on_device(here.data(here.rank, to)) for to in range(here.size)]
    outs = [here.blank() for _ in range(here.size)]
    return Exercise(
        lambda **terms: dist.all_to_all(outs, ins, group=here.group, **terms),
        lambda: _all_same([*outs, *ins], [here.data(*pair) for pair in (*_from(here), *_to(here))]),
    )


def _from(here: _Here) -> list[tuple[int, int]]:
    return [(source, here.rank) for source in range(here.size)]


def _to(here: _Here) -> list[tuple[int, int]]:
    return [(here.rank, to) for to in range(here.size)]


def _barrier(case: Case, here: _Here) -> Exercise:
    return Exercise(lambda **terms: dist.barrier(here.group, **terms), lambda: None)


def _send(case: Case, here: _Here) -> Exercise:
    """Pass a message to the right by `send`, and take the one from the left by `irecv`."""
    right, left = (here.rank + 1) % here.size, (here.rank - 1) % here.size
    array, buffer = on_device(here.data(here.rank)), here.blank()

    def call(**terms: Any) -> None:
        work = dist.irecv(buffer, group=here.group, group_src=left)
        if right == here.rank:
            _done(dist.isend(array, group=here.group, group_dst=right))
        else:
            dist.send(array, group=here.group, group_dst=right, **terms)
        _done(work)

    return Exercise(call, lambda: _all_same([buffer, array], [here.data(left), here.data(here.rank)]))


def _recv(case: Case, here: _Here) -> Exercise:
    """Pass a message to the right by `isend`, and take the one from the left by `recv`."""
    right, left = (here.rank + 1) % here.size, (here.rank - 1) % here.size
    array, buffer = on_device(here.data(here.rank)), here.blank()

    def call(**terms: Any) -> None:
        work = dist.isend(array, group=here.group, group_dst=right)
        sender = dist.recv(buffer, group=here.group, group_src=left, **terms)
        _done(work)
        assert sender == dist.get_global_rank(here.group, left), f"recv returned {sender}"

    return Exercise(call, lambda: _all_same([buffer, array], [here.data(left), here.data(here.rank)]))


#: How to exercise each operation of the capability table.
EXERCISES: dict[str, Callable[[Case, _Here], Exercise]] = {
    "send": _send,
    "recv": _recv,
    "broadcast": _broadcast,
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "all_gather": _all_gather,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "barrier": _barrier,
}


def _all_same(arrays: list[Array], wanted: list[Any]) -> None:
    for array, want in zip(arrays, wanted, strict=True):
        same(array, want)


def _done(work: Work | None) -> None:
    assert work is not None, "a member of the group got no work"
    work.wait()
