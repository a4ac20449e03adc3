"""Ports: those of `RANKWISE_PORTS`, the next one if one is in use; and those of connections of this machine."""

from __future__ import annotations

import errno
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import rankwise as dist
from rankwise_launch.config import LaunchError
from rankwise_launch.port import reserve_port
from rankwise_network import ports
from rankwise_network.interface import at_free_port

PATIENCE_S = 20.0
#: How a port that was asked for is taken, for a time-out.
TAKERS: dict[str, Callable[[int, float], AbstractContextManager[Any]]] = {
    "store": lambda port, timeout_s: dist.TCPStore("127.0.0.1", port, is_master=True, timeout=timeout_s),
    "launcher": lambda port, timeout_s: reserve_port("127.0.0.1", port, timeout_s),
}


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


@contextmanager
def connected() -> Iterator[tuple[int, Callable[[], None]]]:
    """Have a connection; tell which port its nearer end has, and what ends it so that this port is free immediately."""
    with ExitStack() as stack:
        server = stack.enter_context(taken())
        for _ in range(100):  # the system gives a port to several connections that lead to different places
            near = stack.enter_context(socket.create_connection(server.getsockname()))
            stack.enter_context(server.accept()[0])
            if len(list(ports._states(near.getsockname()[1]))) == 1:
                break
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # no minute longer
        yield near.getsockname()[1], near.close


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="this system does not tell of its sockets there")
@pytest.mark.parametrize("taker", TAKERS)
def test_a_port_that_a_connection_has_is_waited_for(
    taker: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waits = threading.Event()

    def is_of_connections(port: int) -> bool:
        found = known(port)
        waits.set()
        return found

    def take(port: int) -> None:
        with TAKERS[taker](port, PATIENCE_S):
            pass

    known = ports.is_of_connections
    monkeypatch.setattr(ports, "is_of_connections", is_of_connections)
    with connected() as (port, end), ThreadPoolExecutor(1) as threads:
        took = threads.submit(take, port)
        assert waits.wait(PATIENCE_S)
        assert not took.done()
        end()
        took.result(PATIENCE_S)
    assert caplog.messages == [f"port {port} is in use by a connection; waiting for it"]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="this system does not tell of its sockets there")
@pytest.mark.parametrize("taker", TAKERS)
def test_a_port_that_a_connection_keeps_is_an_error_that_says_so(taker: str) -> None:
    with (
        connected() as (port, _),
        pytest.raises((dist.DistNetworkError, LaunchError), match=f"{port}.* in use by a connection of this machine"),
        TAKERS[taker](port, 0.3),
    ):
        pass


@pytest.mark.parametrize("taker", TAKERS)
def test_a_port_at_which_somebody_listens_is_not_waited_for(taker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_PAUSE_S", 2 * PATIENCE_S)
    with (
        taken() as other,
        pytest.raises((dist.DistNetworkError, LaunchError), match="in use"),
        TAKERS[taker](other.getsockname()[1], PATIENCE_S),
    ):
        pass
