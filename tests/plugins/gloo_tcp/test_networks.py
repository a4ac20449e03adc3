"""Ranks on different hosts: network namespaces joined by a link of the test's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import across
import pytest
from failing import all_hear
from machines import Hosts, all_say, between_hosts, go_on, results, run, started

PATIENCE_S = 60.0
LEEWAY_S = 2.0

pytestmark = between_hosts


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_everything_works_between_two_hosts(hosts: Hosts, tmp_path: Path, transport: str) -> None:
    assert run(hosts, tmp_path, [0, 1], across.everything, RANKWISE_GLOO_TRANSPORT=transport) == ["right"] * 2


def test_everything_works_between_three_hosts(tmp_path: Path) -> None:
    with Hosts(3) as three:
        assert run(three, tmp_path, [2, 0, 1], across.everything) == ["right"] * 3


def test_everything_works_over_ipv6(hosts: Hosts, tmp_path: Path) -> None:
    found = run(hosts, tmp_path, [0, 1], across.in_turn, "everything", "addresses", MASTER_ADDR=hosts.addresses6[0])
    assert found == [["right", [address]] for address in hosts.addresses6]


def test_everything_works_at_addresses_that_only_the_link_knows(tmp_path: Path) -> None:
    with Hosts(2) as hosts:
        for host in range(2):
            words = f"ip addr add fe80::{host + 1}/64 dev eth0 nodad".split()
            subprocess.run(hosts.command(host, *words), check=True, timeout=PATIENCE_S)
        found = run(hosts, tmp_path, [0, 1], across.in_turn, "everything", "addresses", MASTER_ADDR="fe80::1%eth0")
        assert found == [["right", ["fe80::1"]], ["right", ["fe80::2"]]]


def test_a_link_that_delays_and_loses_packets_only_takes_longer(tmp_path: Path) -> None:
    with Hosts(2, delay_ms=100, loss_percent=5) as far:
        patient = {"RANKWISE_HEARTBEAT_LIMIT_S": "30"}  # a heartbeat may have to be sent several times
        found = run(far, tmp_path, [0, 1], across.a_few, 5000, 25, timeout_s=PATIENCE_S, **patient)
        assert found == ["right"] * 2


def test_a_network_that_falls_apart_is_an_error_within_the_time_out(tmp_path: Path) -> None:
    with Hosts(2) as hosts, started(hosts, tmp_path, [0, 1], across.parted, 3) as processes:
        all_say("ready", processes)
        hosts.part(1)
        go_on(processes)
        for rank, (kind, text, took) in enumerate(results(processes)):
            assert kind in ("DistTimeoutError", "PeerUnreachableError"), (kind, text)
            assert f"rank {1 - rank}" in text
            assert took < 3 + LEEWAY_S


@pytest.mark.parametrize("mute", [False, True], ids=["", "before its first heartbeat"])
@pytest.mark.parametrize("timeout_s", [None, 4.0], ids=["noticed", "timed out"])
def test_a_host_that_is_cut_off_while_a_group_is_made_ends_in_time(
    tmp_path: Path, timeout_s: float | None, mute: bool
) -> None:
    """Each side is told, the one away from the store too: by the silence of the others, or at its time-out."""
    limit_s = "2" if timeout_s is None else "30"
    limits = {"RANKWISE_HEARTBEAT_S": "0.3", "RANKWISE_HEARTBEAT_LIMIT_S": limit_s, "RANKWISE_OUTAGE_LIMIT_S": limit_s}
    call = (across.cut_off_while_making_a_group, timeout_s, mute)
    with Hosts(2) as hosts, started(hosts, tmp_path, [0, 0, 1], *call, **limits) as processes:
        all_say("ready", processes)
        hosts.part(1)
        go_on(processes[2:])
        for kind, text, took in results(processes):
            assert kind in ("DistTimeoutError", "PeerUnreachableError", "DistStoreError"), (kind, text)
            assert took < (9 if timeout_s is None else timeout_s + 2), (kind, text, took)


def test_ranks_live_whose_heartbeats_are_told_by_one_that_is_stopped(hosts: Hosts, tmp_path: Path) -> None:
    found = run(hosts, tmp_path, [0, 1, 1, 1, 1], across.told_by_one_that_is_stopped, 8.0, str(tmp_path))
    assert found == ["2", "1", "1", "1", "1"]


def test_a_death_is_noticed_although_a_child_has_the_dead_ranks_sockets(hosts: Hosts, tmp_path: Path) -> None:
    with started(hosts, tmp_path, [0, 1], across.with_a_child, 20, RANKWISE_HEARTBEAT_S="0.3") as processes:
        all_hear(results(processes[:1]), "PeerDiedError", "rank 1 on", within_s=LEEWAY_S)


def test_ranks_on_two_hosts_need_a_secret(hosts: Hosts, tmp_path: Path) -> None:
    found = run(hosts, tmp_path, [0, 1], across.trouble, RANKWISE_SECRET_FILE="")
    assert all("rankwise secret new" in str(text) for text in found), found
