"""Rounds of all ranks in step: all messages move, each in its turn, and nobody goes on before a round is over."""

from __future__ import annotations

from collections import defaultdict

import pytest

from rankwise.collective.algorithms import Recv, Rounds, Send
from rankwise.collective.algorithms.table import ALGORITHMS, rooted
from rankwise_gloo_tcp.collectives.in_step import in_step

SIZES = (1, 2, 3, 4, 5, 8, 13)
FAMILIES = [(op, name) for op, algorithms in ALGORITHMS.items() for name in algorithms]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("op", "name"), FAMILIES, ids=lambda each: each)
def test_all_rounds_of_the_core_go_in_step(op: str, name: str, size: int) -> None:
    algorithm, args = ALGORITHMS[op][name], rooted(op, size - 1)
    beats = in_step(algorithm, size, *args)
    moved, ended = defaultdict(list), defaultdict(list)
    for beat in beats:
        pairs = [(source, target) for source, target, *_ in beat.transfers]
        assert len(set(pairs)) == len(pairs) > 0
        for source, target, sent, received in beat.transfers:
            assert received.source == source
            assert len(sent) == len(received.blocks)
            moved[source, target].append((tuple(sent), tuple(received.blocks)))
        for rank, taken in beat.ended.items():
            ended[rank].append(taken)
    for rank in range(size):
        rounds = [steps for steps in algorithm(rank, size, *args) if steps]
        assert ended[rank] == [tuple(step for step in steps if isinstance(step, Recv)) for steps in rounds]
        for step in (step for steps in rounds for step in steps):
            if isinstance(step, Send):
                assert moved[rank, step.to].pop(0)[0] == tuple(step.blocks)
    assert not any(moved.values())


def test_as_many_meet_at_a_time_as_can() -> None:
    algorithm = ALGORITHMS["all_reduce"]["recursive_doubling"]
    assert [len(beat.transfers) for beat in in_step(algorithm, 8)] == [8, 8, 8]


def crossed(rank: int, size: int) -> Rounds:
    """Each of two ranks waits before it sends."""
    yield (Recv(1 - rank, range(1)),)
    yield (Send(1 - rank, range(1)),)


def test_ranks_that_wait_for_each_other_are_told() -> None:
    with pytest.raises(ValueError, match="crossed of 2 ranks has them wait for each other"):
        in_step(crossed, 2)
