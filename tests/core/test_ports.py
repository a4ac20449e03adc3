"""`RANKWISE_PORTS`: what listens takes a port of the range, the next one if that is in use, and says when none is."""

from __future__ import annotations

import errno
import socket

import pytest

import rankwise as dist
from rankwise_network.interface import at_free_port


def taken() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def test_a_store_takes_a_port_of_the_range_and_the_next_one_if_that_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with taken() as first:
        low = first.getsockname()[1]
        monkeypatch.setenv("RANKWISE_PORTS", f"{low}-{low + 50}")
        with dist.TCPStore("127.0.0.1", is_master=True) as store:
            assert low < store.port <= low + 50


def test_a_full_range_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with taken() as only:
        monkeypatch.setenv("RANKWISE_PORTS", str(only.getsockname()[1]))
        with pytest.raises(dist.DistNetworkError, match="all of these ports are in use"):
            dist.TCPStore("127.0.0.1", is_master=True)


@pytest.mark.parametrize("text", ["a-b", "29500-", "-5", "5-4", "0-9", "1-70000", "1 2", "१-२"])
def test_what_is_no_range_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKWISE_PORTS", text)
    with pytest.raises(ValueError, match="RANKWISE_PORTS="):
        at_free_port(lambda port: port)


def test_other_errors_are_not_taken_for_a_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(port: int) -> int:
        raise OSError(errno.EACCES, "not allowed")

    monkeypatch.setenv("RANKWISE_PORTS", "29500-29501")
    with pytest.raises(OSError, match="not allowed"):
        at_free_port(refuse)


def test_without_the_variable_the_system_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANKWISE_PORTS", raising=False)
    assert at_free_port(lambda port: port) == 0
