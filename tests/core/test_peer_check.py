"""`rankwise doctor --peer`: the way between two hosts, here two addresses of the loopback interface."""

from __future__ import annotations

import platform
import socket
from typing import Any

import pytest
from tests.processes import free_port
from tests.threads import at_once

from rankwise_launch import peer_check
from rankwise_launch.checks import Level

PATIENCE_S = 60.0

A, B = "127.0.0.1", "127.0.0.2"
pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="other systems have one loopback address")


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    found = free_port()
    monkeypatch.setattr(peer_check, "PORT", found)
    return found


def test_two_doctors_find_all_four_ways(port: int) -> None:
    first, second = peer_check._PairCheck(A, B), peer_check._PairCheck(B, A)
    with first, second:
        at_once(lambda meeting: meeting.run(20.0), (first, second), PATIENCE_S)
        for meeting in (first, second):
            assert meeting.here == meeting.there == {port: "", 0: ""}


def test_a_doctor_alone_says_which_ways_it_could_not_try(port: int) -> None:
    findings = list(peer_check.check_peer(B, wait_s=0.0))
    assert [finding.level for finding in findings] == [Level.GOOD] + [Level.BAD] * 4
    assert "doctor --peer" in findings[1].remedy


def test_a_stranger_is_not_taken_for_the_other_doctor(port: int) -> None:
    with peer_check._PairCheck(A, B) as meeting, socket.socket() as stranger:
        stranger.bind(("127.0.0.3", 0))
        stranger.connect((A, port))
        stranger.settimeout(20)
        assert stranger.recv(10) == b""
        assert all(meeting.here.values())


@pytest.mark.parametrize("said", [b"", b"x" * 32, b"rankwise doctor 99999\n", b"rankwise doctor 0\n"])
def test_what_is_no_doctor_tells_no_port(port: int, said: bytes) -> None:
    with peer_check._PairCheck(A, B) as meeting, socket.socket() as other:
        other.bind((B, 0))
        other.connect((A, port))
        other.sendall(said)
        other.shutdown(socket.SHUT_WR)
        other.settimeout(20)
        while other.recv(100):
            pass
        assert meeting._chosen == 0


def found_at(server: Any) -> Any:
    return list(peer_check.check_peer(f"{A}:{server.getsockname()[1]}"))[-1]


def test_a_port_is_open_refused_or_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_check, "_CONNECT_S", 0.2)
    with socket.create_server((A, 0), backlog=0) as server, socket.socket() as one, socket.socket() as two:
        assert found_at(server).level is Level.GOOD
        for caller in (one, two):
            caller.setblocking(False)
            caller.connect_ex(server.getsockname())
        assert "no answer" in found_at(server).text
    [_, refused] = peer_check.check_peer(f"{A}:{free_port()}")
    assert refused.level is Level.BAD
    assert "refused" in refused.text
