"""The calls that are interrupted. Each is made by all ranks of a group, and may be made again when it was interrupted.

A case gets a `Place` and the number of the step, does the same on all ranks, and raises `Wrong` where the data is not
that of this step: so a message that is lost or comes twice is found by the step that gets another's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from interrupt_checks import within

import rankwise

#: Numbers of elements: within a frame, beyond it, through pieces, and so many that memory is read where it may be.
SIZES = (1, 300, 20_000, 400_000)


#: What warm calls of may run no Python.
_MAY_BE_COMPILED = {
    *("send", "recv", "isend", "irecv", "all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter"),
    *("reduce_scatter", "all_to_all", "barrier", "all_reduce_coalesced"),
}


class _Calls:
    """The public calls, in which interrupts count also where they run no Python."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(rankwise, name)
        return partial(within, found) if name in _MAY_BE_COMPILED else found


dist: Any = _Calls()


class Wrong(AssertionError):
    """A call has brought what it must not bring."""


class Place:
    """Where a step is made.

    Attributes:
        group: The group.
        device: Of which kind the arrays are.
        works: What has been begun in this step: a step that was interrupted while it waited goes on to wait for it.
        calls: How many of this step's calls that begin works have returned; they are not made again.
    """

    def __init__(self, group: Any, device: str = "cpu") -> None:
        self.group, self.device = group, device
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.works: list[Any] = []
        self.calls = 0
        self.array: Any = None

    def full(self, count: int, value: int) -> Any:
        """Return a new array of the kind of device that is tried."""
        return np.full(count, value, np.int64)

    def begun(self, *begin: Callable[[], Any]) -> None:
        """Begin works, but for those that were begun before this step was interrupted, and wait for them."""
        for one in begin[self.calls :]:
            made = one()
            self.works += made if isinstance(made, list) else [made]
            self.calls += 1
        while self.works:
            within(self.works[0].wait)
            self.works.pop(0)
        self.calls = 0


Case = Callable[[Place, int], None]


def check(array: Any, value: int, what: str) -> None:
    # No code of Python's runs here, which could be interrupted when the call has returned.
    if array.tobytes() != value.to_bytes(8, "little", signed=True) * array.size:
        raise Wrong(f"{what}: {array.reshape(-1)[0]}..{array.reshape(-1)[-1]} and not {value}")


def total(step: int, size: int) -> int:
    return sum(step * 10 + rank for rank in range(size))


def mine(place: Place, step: int) -> int:
    return step * 10 + place.rank


def send_recv(count: int, anyone: bool = False) -> Case:
    def run(place: Place, step: int) -> None:
        sender = step % 2
        if place.rank == sender:
            dist.send(place.full(count, step), 1 - sender, place.group)
        elif place.rank == 1 - sender:
            array = place.full(count, -1)
            dist.recv(array, None if anyone else sender, place.group)
            check(array, step, "recv")

    return run


def messages(count: int, batch: bool) -> Case:
    """Each of two ranks sends to the other at the same time."""

    def run(place: Place, step: int) -> None:
        if place.rank > 1:
            return
        peer = 1 - place.rank

        def receive() -> Any:
            place.array = place.full(count, -1)
            return dist.irecv(place.array, peer, place.group)

        def send() -> Any:
            return dist.isend(place.full(count, step), peer, place.group)

        def both() -> list[Any]:
            place.array = place.full(count, -1)
            receiving = dist.P2POp(rankwise.irecv, place.array, peer, place.group)
            sending = dist.P2POp(rankwise.isend, place.full(count, step), peer, place.group)
            return dist.batch_isend_irecv([receiving, sending])

        place.begun(*((both,) if batch else (receive, send)))
        check(place.array, step, "irecv")

    return run


def collective(count: int, op: str) -> Case:
    def run(place: Place, step: int) -> None:
        size, group, root = place.size, place.group, step % place.size
        array = place.full(count, mine(place, step))
        parts = [place.full(count, -1) for _ in range(size)]
        if op == "all_reduce":
            dist.all_reduce(array, group=group)
            check(array, total(step, size), op)
        elif op == "broadcast":
            dist.broadcast(array, root, group)
            check(array, step * 10 + root, op)
        elif op == "reduce":
            dist.reduce(array, root, group=group)
            check(array, total(step, size) if place.rank == root else mine(place, step), op)
        elif op == "all_gather":
            dist.all_gather(parts, array, group)
        elif op == "gather":
            dist.gather(array, parts if place.rank == root else None, root, group)
        elif op == "scatter":
            given = [place.full(count, step * 10 + rank) for rank in range(size)]
            dist.scatter(array, given if place.rank == root else None, root, group)
            check(array, mine(place, step), op)
        elif op == "reduce_scatter":
            dist.reduce_scatter(array, [place.full(count, step * 10 + place.rank)] * size, group=group)
            check(array, total(step, size), op)
        elif op == "all_to_all":
            dist.all_to_all(parts, [place.full(count, mine(place, step)) for _ in range(size)], group)
        elif op == "monitored_barrier":
            dist.monitored_barrier(group)
        else:
            dist.barrier(group)
        if op in ("all_gather", "all_to_all") or (op == "gather" and place.rank == root):
            for rank, part in enumerate(parts):
                check(part, step * 10 + rank, op)

    return run


def asynchronous(count: int, op: str) -> Case:
    def run(place: Place, step: int) -> None:
        root = step % place.size

        def begin() -> Any:
            place.array = place.full(count, mine(place, step))
            if op == "all_reduce":
                return dist.all_reduce(place.array, group=place.group, async_op=True)
            return dist.broadcast(place.array, root, place.group, async_op=True)

        place.begun(begin)
        check(place.array, total(step, place.size) if op == "all_reduce" else step * 10 + root, op)

    return run


def futures(place: Place, step: int) -> None:
    """What is waited for by its future, which is asked and told of its end by other threads."""
    if not place.works:
        place.array = place.full(300, mine(place, step))
        # The work is kept before its future is asked for, which may be interrupted: it is not begun twice.
        place.works = [dist.all_reduce(place.array, group=place.group, async_op=True)]
    future = place.works[0].get_future()
    while not future.done():
        future.result()
    future.result()
    place.works.clear()
    check(place.array, total(step, place.size), "all_reduce")


def several(count: int, op: str) -> Case:
    """One call for several: collectives that are issued together, and those of several arrays."""

    def run(place: Place, step: int) -> None:
        size, group, root = place.size, place.group, step % place.size
        first, second = place.full(count, mine(place, step)), place.full(3, mine(place, step))
        parts = [place.full(count, -1) for _ in range(size)]
        if op == "coalescing":
            with dist.coalescing(group):
                dist.all_reduce(first, group=group)
                dist.broadcast(second, root, group)
            check(second, step * 10 + root, op)
        elif op == "all_reduce_coalesced":
            dist.all_reduce_coalesced([first, second], group=group)
            check(second, total(step, size), op)
        elif op == "all_reduce_multigpu":
            dist.all_reduce_multigpu([first, place.full(count, 0)], group=group)
        elif op == "all_gather_multigpu":
            dist.all_gather_multigpu([parts], [first], group)
        elif op == "all_gather_coalesced":
            dist.all_gather_coalesced([parts], [first], group)
        if op.startswith("all_gather"):
            for rank, part in enumerate(parts):
                check(part, step * 10 + rank, op)
        else:
            check(first, total(step, size), op)

    return run


def object_messages(place: Place, step: int) -> None:
    sender, told = step % 2, [{"step": step}, step]
    if place.rank == sender:
        dist.send_object_list(told, 1 - sender, place.group)
    elif place.rank == 1 - sender:
        found = [None, None]
        dist.recv_object_list(found, sender, place.group)
        if found != told:
            raise Wrong(f"recv_object_list: {found} and not {told}")


def objects(op: str) -> Case:
    def run(place: Place, step: int) -> None:
        root, told = step % place.size, {"step": step, "of": place.rank}
        if op == "broadcast":
            listed = [told]
            dist.broadcast_object_list(listed, root, place.group)
            found, wanted = listed, [{"step": step, "of": root}]
        elif op == "gather":
            found = [None] * place.size if place.rank == root else None
            dist.gather_object(told, found, root, place.group)
            wanted = [{"step": step, "of": rank} for rank in range(place.size)] if place.rank == root else None
        elif op == "scatter":
            found, wanted = [None], [{"step": step, "to": place.rank}]
            given = [{"step": step, "to": rank} for rank in range(place.size)]
            dist.scatter_object_list(found, given if place.rank == root else None, root, place.group)
        else:
            found = [None] * place.size
            dist.all_gather_object(found, told, place.group)
            wanted = [{"step": step, "of": rank} for rank in range(place.size)]
        if found != wanted:
            raise Wrong(f"{op} of objects: {found} and not {wanted}")

    return run


def _cases() -> Iterator[tuple[str, Case]]:
    for count in SIZES:
        yield f"send_recv {count}", send_recv(count)
        yield f"isend_irecv {count}", messages(count, batch=False)
        for op in ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all"):
            yield f"{op} {count}", collective(count, op)
        yield f"async all_reduce {count}", asynchronous(count, "all_reduce")
    for count in SIZES[0], SIZES[2]:
        yield f"recv from anyone {count}", send_recv(count, anyone=True)
        yield f"batch {count}", messages(count, batch=True)
        for op in ("reduce", "gather", "scatter"):
            yield f"{op} {count}", collective(count, op)
    yield "async broadcast 300", asynchronous(300, "broadcast")
    yield "future of all_reduce", futures
    yield "barrier", collective(1, "barrier")
    yield "monitored_barrier", collective(1, "monitored_barrier")
    yield "broadcast_object_list", objects("broadcast")
    yield "all_gather_object", objects("all_gather")
    yield "gather_object", objects("gather")
    yield "scatter_object_list", objects("scatter")
    yield "send_object_list", object_messages
    for op in ("coalescing", "all_reduce_coalesced", "all_gather_coalesced"):
        yield f"{op} 300", several(300, op)
    yield "all_reduce_multigpu 20000", several(20_000, "all_reduce_multigpu")
    yield "all_gather_multigpu 300", several(300, "all_gather_multigpu")


CASES: dict[str, Case] = dict(_cases())
