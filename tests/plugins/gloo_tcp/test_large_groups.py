"""Groups in which nobody looks after everybody: a death, a leave, and all that works as in a small one."""

from __future__ import annotations

from collections.abc import Iterator

import large_programs as programs
import pytest
from failing import all_hear

from rankwise_gloo_tcp.communicator import behind
from rankwise_testing import RankPool

SOON_S = 5.0
SIZE = 5


@pytest.fixture(scope="module")
def ranks() -> Iterator[RankPool]:
    """Ranks of one host."""
    with RankPool(SIZE, env={"RANKWISE_GLOO_TRANSPORT": "auto"}) as pool:
        yield pool


@pytest.mark.parametrize(("doomed", "looked_after"), [(0, 1), (2, 1), (4, 1), (2, 3)])
def test_a_death_in_a_barrier_is_named_on_all_ranks(ranks: RankPool, doomed: int, looked_after: int) -> None:
    told = ranks.run(programs.death_at_the_board, doomed, looked_after, doomed=[doomed])
    del told[doomed]
    all_hear(told, "PeerDiedError", f"rank {doomed} on", "killed by SIGKILL", within_s=SOON_S)
    assert len({text for _, text, _ in told}) == 1


def test_a_death_fails_who_waits_for_its_message(ranks: RankPool) -> None:
    told = ranks.run(programs.death_before_a_message, 1, doomed=[1])
    all_hear((told[0], *told[2:]), "PeerDiedError", "rank 1 on", within_s=SOON_S)


def test_who_has_left_is_named_to_those_who_wait_for_it(ranks: RankPool) -> None:
    told = ranks.run(programs.leaving_early)
    assert told[3] is None
    all_hear((*told[:3], *told[4:]), "PeerDiedError", "rank 3", "has destroyed the group", within_s=SOON_S)


def test_all_calls_work(ranks: RankPool) -> None:
    for rank, told in enumerate(ranks.run(programs.everything)):
        others = [float(peer) for peer in range(SIZE) if peer != rank]
        assert told == [15.0, *map(float, range(SIZE)), *others]


@pytest.mark.parametrize("size", [2, 5, 64, 65, 100, 1000])
def test_each_rank_is_looked_after_by_some_others_and_who_is_late_alone_by_all(size: int) -> None:
    for rank in range(0, size, max(1, size // 7)):
        after = behind(range(size), rank, size)
        assert rank not in after
        assert len(after) == (size - 1 if size <= 64 else 8)
        assert behind([(rank + 1) % size], rank, size) == [(rank + 1) % size]
    looked_after = {peer for rank in range(size) for peer in behind(range(size), rank, size)}
    assert looked_after == set(range(size))
