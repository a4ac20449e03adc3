"""What ranks run with collectives that are described in steps."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import described_calls as calls
import numpy as np
from failing import error_of
from programs import begin, end

import rankwise as dist
from rankwise.basics import native
from rankwise.collective.call import OPERATIONS

COUNTS = (0, 1, 5, 70_000)
NAMES = ["scan", "everywhere", "told_all", "handed_down", "swapped"]


@contextmanager
def on_host(layout: str, in_python: Sequence[int] = ()) -> Iterator[None]:
    """Be on the pretended host that a layout has for this rank, in a group; some ranks take their steps one by one."""
    rank, changed = int(os.environ["RANK"]), []
    os.environ["WORLD_SIZE"] = str(len(layout))
    host = f"host-{layout[rank]}"
    changed.append((vars(import_module("rankwise_gloo_tcp.setup.cards")), "machine", lambda: (host, host)))
    if rank in in_python and native.module() is not None:
        changed.append((vars(import_module("rankwise_gloo_tcp.collectives.compiled_means")), "_MOST_NBYTES", -1))
    before = [names[name] for names, name, _ in changed]
    for names, name, value in changed:
        names[name] = value
    try:
        begin(60.0)
        yield
        end()
    finally:
        for (names, name, _), value in zip(changed, before, strict=True):
            names[name] = value


def _made(dtype: Any, count: int) -> dict[str, Callable[[], Any]]:
    """Return calls on arrays of values whose sums depend on their order, as functions that return results."""
    random = np.random.default_rng(dist.get_rank())
    values = (random.normal(size=count) * 10.0 ** random.integers(-3, 4, count)).astype(dtype)
    values[::2] = random.choice([0.0, -0.0], values[::2].size)  # the lesser of which depends on the order too
    reduced = {
        f"{call.__name__} {op.name}": (call, op)
        for call in (calls.scan, calls.everywhere)
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.AVG)
        if op.name != "AVG" or np.dtype(dtype).kind == "f"
    }

    def in_place(call: Callable[..., Any], *args: Any) -> Any:
        array = values.copy()
        call(array, *args)
        return array

    def told() -> Any:
        outs = [np.empty_like(values) for _ in range(dist.get_world_size())]
        calls.told_all(outs, values)
        return np.array(outs)

    return {
        **{name: lambda call=call, op=op: in_place(call, op) for name, (call, op) in reduced.items()},
        "handed_down": lambda: in_place(calls.handed_down, dist.get_world_size() - 1),
        "swapped": lambda: in_place(calls.swapped),
        "told_all": told,
    }


def bits(layout: str, in_python: Sequence[int] = ()) -> list[bytes]:
    """Return what calls give, each of them made twice."""
    found = []
    with on_host(layout, in_python):
        for dtype in (np.float32, np.int64, np.float16):
            for count in COUNTS:
                for call in _made(dtype, count).values():
                    first, again = call(), call()
                    assert first.tobytes() == again.tobytes()
                    found.append(hashlib.sha256(first.tobytes()).digest())
    return found


def taken_in_c(layout: str, in_python: Sequence[int] = ()) -> list[str]:
    """Return the calls that C does not take the second time."""
    array = np.ones(5, np.float32)
    with on_host(layout, in_python):
        outs, dtype = [array.copy() for _ in range(dist.get_world_size())], np.float32
        for call in _made(dtype, 5).values():
            call()
        calls_in_c = dist.group.WORLD.shortcuts.described  # type: ignore[union-attr]
        arguments = {
            "scan": (array, dist.ReduceOp.SUM, -1, None, None),
            "everywhere": (array, dist.ReduceOp.MIN, -1, None, None),
            "told_all": (array, None, -1, None, outs),
            "handed_down": (array, None, dist.get_world_size() - 1, None, None),
            "swapped": (array, None, -1, None, None),
        }
        return [name for name, given in arguments.items() if not calls_in_c(name, *given, None)]


def bits_over_messages(layout: str) -> list[bytes]:
    """Return the same of the same collectives that nobody knows the steps of."""
    before = {name: OPERATIONS[name] for name in NAMES}
    for name, operation in before.items():
        derive = operation.derive
        OPERATIONS[name] = operation._replace(derive=lambda *args, derive=derive: derive(*args))
    try:
        return bits(layout)
    finally:
        OPERATIONS.update(before)


def disagree(layout: str, in_python: Sequence[int] = ()) -> list[str]:
    """Return the errors of ranks that do not make the same call; then all go on together."""
    told = []
    with on_host(layout, in_python):
        rank = dist.get_rank()
        for count in (3, 3, 3 + rank):
            told.append(str(error_of(lambda count=count: calls.scan(np.ones(count), dist.ReduceOp.SUM))))
        told.append(str(error_of(lambda: calls.scan(np.ones(3), dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM))))
        array = np.ones(3)
        calls.scan(array, dist.ReduceOp.SUM)
        assert array.tolist() == [rank + 1] * 3
    return told


def late(layout: str, victim: int) -> str:
    """Return how a warm call ends in which one rank does not take part."""
    with on_host(layout):
        for _ in range(3):
            calls.scan(np.ones(3), dist.ReduceOp.SUM)
        store = dist.group.WORLD.get_group_store()  # type: ignore[union-attr]
        assert store is not None
        if dist.get_rank() == victim:
            store.wait([f"over on {rank}" for rank in range(victim)])
            return ""
        error = error_of(lambda: calls.scan(np.ones(3), dist.ReduceOp.SUM, timeout=0.5))
        store.set(f"over on {dist.get_rank()}", b"")
        return type(error).__name__
