"""A network that is out of order for a while is no death, and one that stays so is told apart from one."""

from __future__ import annotations

import time
from pathlib import Path

import across
import pytest
from machines import Hosts, all_say, between_hosts, go_on, results, started

#: An outage that must pass unnoticed.
OUTAGE_S = 8.0
LEEWAY_S = 8.0
PATIENCE_S = 120.0

pytestmark = between_hosts


@pytest.mark.parametrize("cut_off", [0, 2], ids=["the store's host", "another"])
def test_an_outage_of_eight_seconds_is_no_death(tmp_path: Path, cut_off: int) -> None:
    with Hosts(3) as hosts, started(hosts, tmp_path, [0, 1, 2], across.through_an_outage, PATIENCE_S) as processes:
        all_say("ready", processes)
        hosts.part(cut_off)
        time.sleep(OUTAGE_S)  # nothing else makes it one of eight seconds
        hosts.join(cut_off)
        go_on(processes[:1])
        all_say("said", processes)
        go_on(processes)
        found = results(processes, PATIENCE_S)
    assert [kind for kind, _, _ in found] == ["right"] * 3, found


@pytest.mark.parametrize("cut_off", [0, 2], ids=["the store's host", "another"])
def test_who_stays_out_of_reach_is_unreachable_and_not_dead(tmp_path: Path, cut_off: int) -> None:
    """Whoever can still talk to each other raises the same; the one that is cut off names one that it has lost."""
    limits = {"RANKWISE_HEARTBEAT_S": "0.3", "RANKWISE_HEARTBEAT_LIMIT_S": "2", "RANKWISE_OUTAGE_LIMIT_S": "2"}
    call = (across.through_an_outage, PATIENCE_S)
    with Hosts(3) as hosts, started(hosts, tmp_path, [0, 1, 2], *call, **limits) as processes:
        all_say("ready", processes)
        hosts.part(cut_off)
        all_say("said", processes)
        go_on(processes)
        found = results(processes)
    assert {kind for kind, _, _ in found} == {"PeerUnreachableError"}, found
    assert max(took for _, _, took in found) < 2 + LEEWAY_S, found
    texts = [text for _, text, _ in found]
    assert all("nobody here knows" in text for text in texts), found
    lonely = texts.pop(cut_off)
    assert f"rank {cut_off} on" not in lonely
    assert all(text.startswith(f"rank {cut_off} on") for text in texts), found
    if cut_off != 0:  # else those that are left have no store in which they could agree on the words
        assert len(set(texts)) == 1, found
