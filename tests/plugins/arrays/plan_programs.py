"""What ranks run with prepared calls."""

from __future__ import annotations

from typing import Any

import numpy as np

import rankwise as dist

#: For each call how it is prepared, by this rank and the number of ranks, and what it is to fill.
PLANS: dict[str, Any] = {
    "all_gather": lambda me, size, a: (([out := [np.zeros(2) for _ in range(size)], a], {}), out),
    "all_gather_single": lambda me, size, a: (([out := np.zeros(2 * size), a], {}), out),
    "all_reduce": lambda me, size, a: (([a], {"op": dist.ReduceOp.MAX}), a),
    "all_to_all": lambda me, size, a: (([out := [np.zeros(2) for _ in range(size)], [a] * size], {}), out),
    "all_to_all_single": lambda me, size, a: (([out := np.zeros(2 * size), np.tile(a, size)], {}), out),
    "broadcast": lambda me, size, a: (([a, size - 1], {}), a),
    "gather": lambda me, size, a: (
        ([a, out := [np.zeros(2) for _ in range(size)] if me == 0 else None], {"dst": 0}),
        out,
    ),
    "reduce": lambda me, size, a: (([a], {"dst": 0}), a if me == 0 else None),
    "reduce_scatter": lambda me, size, a: (([out := np.zeros(2), [a] * size], {}), out),
    "reduce_scatter_single": lambda me, size, a: (([out := np.zeros(2), np.tile(a, size)], {}), out),
    "scatter": lambda me, size, a: (([a, [a + n for n in range(size)] if me == 0 else None], {"src": 0}), a),
}


def same_as_the_plain_call(call: str) -> None:
    """Run a plan in both ways, and compare with the plain call."""
    me, size = dist.get_rank(), dist.get_world_size()

    def prepared() -> Any:
        return PLANS[call](me, size, np.arange(2.0) + me)

    (args, options), meant = prepared()
    getattr(dist, call)(*args, **options)
    (args, options), filled = prepared()
    with dist.prepare(call, *args, **options) as plan:
        plan()
        np.testing.assert_equal(filled, meant)
    (args, options), filled = prepared()
    with dist.prepare(call, *args, **options) as plan:
        plan.start()
        plan.wait(30)
        np.testing.assert_equal(filled, meant)


def messages_and_barriers() -> None:
    """Run messages along a ring, many times, on what the arrays hold then."""
    me, size = dist.get_rank(), dist.get_world_size()
    sent, come = np.zeros(1), np.zeros(1)
    with (
        dist.prepare("send", sent, (me + 1) % size, tag=3) as send,
        dist.prepare("recv", come, (me - 1) % size, tag=3) as recv,
        dist.prepare("barrier") as barrier,
    ):
        for turn in range(50):
            sent[0] = 100 * turn + me
            send.start()
            assert recv() == (me - 1) % size
            send.wait()
            assert come[0] == 100 * turn + (me - 1) % size
            barrier()


def ranks_that_differ() -> list[tuple[str, tuple[int, ...]]]:
    """Return what all hear of preparing different things, each time the last rank differs."""
    is_odd, told = dist.get_rank() == dist.get_world_size() - 1, []
    for call, args, options in (
        ("all_reduce", [np.ones(3 if is_odd else 2)], {}),
        ("all_reduce", [np.ones(2, "f4" if is_odd else "f8")], {}),
        ("all_reduce", [np.ones(2)], {"op": dist.ReduceOp.MAX if is_odd else dist.ReduceOp.SUM}),
        ("broadcast", [np.ones(2), 1 if is_odd else 0], {}),
        ("reduce" if is_odd else "all_reduce", [np.ones(2)], {}),
    ):
        try:
            dist.prepare(call, *args, **options)
        except dist.CollectiveMismatchError as error:
            told.append((str(error), error.odd_ranks))
    assert dist.functional.all_reduce(1) == dist.get_world_size()
    return told


def different_plans() -> str:
    """Return what is heard where ranks run different plans, of those that all have prepared."""
    first = dist.prepare("all_reduce", np.ones(2))
    second = dist.prepare("broadcast", np.ones(2), 0)
    try:
        (first if dist.get_rank() else second)()
    except dist.CollectiveMismatchError as error:
        return str(error)
    return ""
