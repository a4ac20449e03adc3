"""For how long a network may be out of order, as the environment says it."""

from __future__ import annotations

from math import inf

import pytest

from rankwise.errors import PeerDiedError, PeerUnreachableError
from rankwise.observing import death_verdict, told_by
from rankwise_launch import nodes
from rankwise_launch.config import LaunchError
from rankwise_network import outage


@pytest.mark.parametrize(("text", "limit_s"), [("", 20.0), ("0", inf), ("-1", inf), ("2.5", 2.5)])
def test_the_limit_is_what_is_set(monkeypatch: pytest.MonkeyPatch, text: str, limit_s: float) -> None:
    monkeypatch.setenv(outage.VARIABLE, text)
    assert outage.limit_s() == limit_s
    assert nodes.silence_s() == max(5.0, limit_s)
    monkeypatch.setenv("RANKWISE_HEARTBEAT_LIMIT_S", "30")
    assert nodes.silence_s() == max(30.0, limit_s)


def test_what_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(outage.VARIABLE, "long")
    with pytest.raises(ValueError, match="RANKWISE_OUTAGE_LIMIT_S is 'long', but must be a number of seconds"):
        outage.limit_s()
    with pytest.raises(LaunchError, match="RANKWISE_OUTAGE_LIMIT_S"):
        nodes.silence_s()


@pytest.mark.parametrize("kind", [PeerDiedError, PeerUnreachableError])
def test_who_makes_a_group_hears_whether_a_rank_is_dead_or_out_of_reach(kind: type[PeerDiedError]) -> None:
    told = told_by(death_verdict(kind(3, "node7", "no word"), "new_group"))
    assert type(told) is kind
    assert (told.rank, told.host, told.cause) == (3, "node7", "no word, during new_group")
