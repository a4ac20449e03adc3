"""Survivors go on, whatever number dies, and whichever dies while they make a smaller group."""

from __future__ import annotations

import pytest
import recovery_programs as programs
from failing import all_hear

from rankwise_testing import RankPool

CASES = [
    {"at once": [3]},
    {"at once": [1, 3]},
    {"at once": [1, 2, 3]},
    {"at once": [1, 2, 3, 4]},
    {"at once": [4], "before it comes": [2]},
    {"at once": [1], "when it has come": [3]},
    {"at once": [1], "when they connect": [3]},
    {"at once": [1], "when it has connected": [4]},
    {"at once": [1], "when it has come": [2], "when it has connected": [3]},
    {"at once": [3], "before it comes": [4], "when they connect": [1, 2]},
]


@pytest.mark.parametrize("transport", ["tcp", "shm"])
@pytest.mark.parametrize("deaths", CASES, ids=str)
def test_those_who_live_go_on_as_the_page_on_reliability_says(transport: str, deaths: dict[str, list[int]]) -> None:
    doomed = sorted(rank for ranks in deaths.values() for rank in ranks)
    alive = [rank for rank in range(5) if rank not in doomed]
    with RankPool(5, env={"RANKWISE_GLOO_TRANSPORT": transport}) as pool:
        outcomes = pool.run(programs.go_on, deaths, doomed=doomed)
    for rank in alive:
        assert outcomes[rank] == (float(len(alive) ** 2), alive)


@pytest.mark.parametrize("timeout", [None, 2.0], ids=["noticed", "timed out"])
def test_who_makes_a_group_does_not_wait_for_a_store_that_is_out_of_reach(timeout: float | None) -> None:
    """As where its host was cut off. Without a time-out it is noticed as soon as in a collective."""
    env = {"RANKWISE_HEARTBEAT_S": "0.2", "RANKWISE_HEARTBEAT_LIMIT_S": "1" if timeout is None else "30"}
    with RankPool(3, env=env) as pool:
        outcomes = pool.run(programs.make_a_group_while_the_store_stands_still, timeout, doomed=[0])
    if timeout is None:
        all_hear(outcomes[1:], "PeerDiedError", "rank 0 on", within_s=programs.STANDS_S - 1)
    else:
        all_hear(outcomes[1:], "DistTimeoutError", within_s=timeout + 2)
        assert min(took_s for _, _, took_s in outcomes[1:]) >= timeout
