"""Collectives that are described in steps, over messages."""

from __future__ import annotations

import numpy as np

from rankwise.basics.deadline import Deadline
from rankwise.basics.reduce_op import ReduceOp
from rankwise.collective.algorithms.table import ALGORITHMS
from rankwise.collective.call import Call
from rankwise.collective.described import Described, Steps
from rankwise_local import local_world


def doubled(by: Steps, call: Call) -> None:
    """Add all arrays, by way of a copy."""
    total = by.accumulator(ReduceOp.SUM, call.array)
    by.copy(call.array, total)
    by.rounds(ALGORITHMS["all_reduce"]["two_shot"], *[[total[:1], total[1:2], total[2:]]] * 2, ReduceOp.SUM)
    by.finish(ReduceOp.AVG, total, call.array)


def test_a_description_is_carried_out_over_messages() -> None:
    def ranks() -> list[float]:
        import rankwise as dist
        from rankwise.groups.world import resolve

        pg = resolve(None, "doubled")
        assert pg is not None
        array = np.full(5, float(dist.get_rank()))
        comm = pg.lane(array, "broadcast")
        Described(doubled)(comm, Call("broadcast", array, root=0), Deadline(30), [])
        found: list[float] = array.tolist()
        return found

    with local_world(3) as world:
        assert world.run(ranks) == [[1.0] * 5] * 3
