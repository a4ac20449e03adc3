"""A connection that fails is an error of its own: death is only what heartbeats, processes and good-byes say."""

from __future__ import annotations

import ast
import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import across
import pytest
from machines import PORT, Hosts, all_say, between_hosts, go_on, results, started

import rankwise_gloo_tcp
from rankwise.errors import DistNetworkError, PeerDiedError
from rankwise_gloo_tcp.engine.config import EngineConfig
from rankwise_gloo_tcp.engine.engine import Engine
from rankwise_gloo_tcp.protocol.card import Card

PATIENCE_S = 20.0
LEEWAY_S = 7.0

WALLS = Path(__file__).with_name("walls.py")


# ---------------------------------------------------------------------- one engine, and what stands at its peer's port


@contextlib.contextmanager
def refuses() -> Iterator[int]:
    """Nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    yield port


@contextlib.contextmanager
def is_silent() -> Iterator[int]:
    """The queue of those who have come is full, so that the system drops who comes next, as a firewall would."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, contextlib.ExitStack() as callers:
        for _ in range(3):
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(server.getsockname())
        yield server.getsockname()[1]


@contextlib.contextmanager
def hangs_up() -> Iterator[int]:
    """Something takes each connection, and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def card(port: int) -> Card:
    known = {"uid": 0, "pid": 0, "address": "127.0.0.1", "port": port, "integrity": "header", "cores": ("1", 1.0)}
    return Card(**{name: known.get(name, "") for name in Card._fields})


@pytest.mark.parametrize("there", [refuses, is_silent, hangs_up])
def test_a_connection_that_does_not_come_about_says_where_it_failed(there) -> None:  # type: ignore[no-untyped-def]
    with there() as port:
        failures: list[BaseException] = []
        engine = Engine(EngineConfig(0, [card(1), card(port)], b"k" * 32, True, (10, 11), 2.0, failures.append, False))
        try:
            engine.send_bytes(memoryview(b"hello"), 1, 7)
            deadline = monotonic() + 20
            while not failures and monotonic() < deadline:
                engine.look()
            [error] = failures
            assert type(error) is DistNetworkError
            assert error.rank == 11
            for word in ("from rank 10", "address 127.0.0.1", "interface lo", "to rank 11", f"port {port}", "since"):
                assert word in str(error), error
            for word in ("firewall", "RANKWISE_SOCKET_IFNAME", "doctor --peer 127.0.0.1"):
                assert word in str(error), error
            assert "gone" not in str(error)
        finally:
            engine.abort(DistNetworkError("the test is over"))
            engine.close()


# ---------------------------------------------------------------------- hosts with walls between them


def wall(hosts: Hosts, here: int, source: int, how: str) -> None:
    """Have a host refuse or drop what comes from another; in all but one way also what the store sends."""
    _walls(hosts, here, how, hosts.addresses[source], str(PORT))


def unwall(hosts: Hosts, here: int) -> None:
    """Have a host hear everyone again."""
    _walls(hosts, here, "down")


def _walls(hosts: Hosts, here: int, *words: str) -> None:
    subprocess.run(hosts.command(here, sys.executable, str(WALLS), *words), check=True, timeout=PATIENCE_S)


def told(  # type: ignore[no-untyped-def]
    hosts: Hosts, folder: Path, walls: list[tuple[int, int]], how: str, warm: bool, timeout_s: float = 8, **env
) -> list[tuple]:  # type: ignore[type-arg]
    """Return what each host's rank says of a call after walls have been put up; all live until all have said it."""
    where = list(range(len(hosts.names)))
    env["RANKWISE_HEARTBEAT_S"] = "0.5"
    with started(hosts, folder, where, across.walled_off, timeout_s, warm, **env) as processes:
        all_say("ready", processes)
        for here, source in walls:
            wall(hosts, here, source, how)
        go_on(processes)
        all_say("said", processes)
        go_on(processes)
        return results(processes)


@between_hosts
@pytest.mark.parametrize(
    ("walls", "how", "warm"),
    [([(2, 1)], "refuse", False), ([(1, 2), (2, 1)], "drop", False), ([(2, 1)], "refuse", True)],
    ids=["refused", "silent", "broken"],
)
def test_a_wall_between_living_ranks_is_no_death(
    tmp_path: Path, walls: list[tuple[int, int]], how: str, warm: bool
) -> None:
    with Hosts(3) as hosts:
        found = told(hosts, tmp_path, walls, how, warm)
    kinds, texts = {kind for kind, _, _ in found}, {text for _, text, _ in found}
    assert kinds == {"DistNetworkError"}, found
    assert len(texts) == 1, found
    [text] = texts
    if not warm:
        for word in ("10.77.0.2", "10.77.0.3", "port", "eth0", "since", "firewall", "RANKWISE_SOCKET_IFNAME"):
            assert word in text
    assert max(took for _, _, took in found) < LEEWAY_S, found


@between_hosts
def test_a_wall_that_lets_one_direction_through_is_none(tmp_path: Path) -> None:
    with Hosts(3) as hosts:
        for source in (0, 1):
            wall(hosts, 2, source, "drop-new")
        found = told(hosts, tmp_path, [], [], False)
    assert [kind for kind, _, _ in found] == ["right"] * 3, found


@between_hosts
@pytest.mark.parametrize("integrity", ["header", "encrypted"])
@pytest.mark.parametrize("walls", [[(1, 2), (2, 1)], [(2, 1)]], ids=["both ways", "one way"])
def test_an_established_connection_that_falls_silent_is_no_death(
    tmp_path: Path, walls: list[tuple[int, int]], integrity: str
) -> None:
    with Hosts(3) as hosts:
        found = told(hosts, tmp_path, walls, "drop", True, timeout_s=14, RANKWISE_GLOO_INTEGRITY=integrity)
    kinds, texts = {kind for kind, _, _ in found}, {text for _, text, _ in found}
    assert (kinds, len(texts)) == ({"DistNetworkError"}, 1), found
    [text] = texts
    for word in ("has fallen silent", "10.77.0.2", "10.77.0.3", "port", "eth0", "since", "firewall", "doctor --peer"):
        assert word in text, found
    assert max(took for _, _, took in found) < 2 * LEEWAY_S, found


@between_hosts
def test_a_time_out_tells_of_a_connection_that_has_fallen_silent(tmp_path: Path) -> None:
    """Where the time-out is too short to find out whether the rank at the other end lives."""
    with Hosts(2) as hosts:
        found = told(hosts, tmp_path, [(1, 0)], "drop-all-but", True, timeout_s=7)
    assert {kind for kind, _, _ in found} == {"DistTimeoutError"}, found
    for _, text, _ in found:
        assert "has fallen silent" in text
        assert "firewall" in text


@between_hosts
def test_a_connection_that_comes_back_in_time_goes_on(tmp_path: Path) -> None:
    with Hosts(2) as hosts, started(hosts, tmp_path, [0, 1], across.silent_for_a_while, 60) as processes:
        all_say("ready", processes)
        wall(hosts, 1, 0, "drop-all-but")
        go_on(processes)
        all_say("silent", processes[:1])
        unwall(hosts, 1)
        assert results(processes) == ["right"] * 2


# ---------------------------------------------------------------------- who may say that a rank has died

EVIDENCE = {
    "_is_over": "the descriptor of its process, or that its number is free",
    "peer_left": "its good-bye over a connection",
    "_why_gone": "its good-bye at the board",
    "death": "makes the error for those above",
}


def test_only_a_process_or_a_good_bye_makes_the_error_of_a_death() -> None:
    root, found = Path(rankwise_gloo_tcp.__file__).parent, set()
    for file in root.rglob("*.py"):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef):
                calls = {
                    node.func.id
                    for node in ast.walk(function)
                    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                }
                if calls & {"death", PeerDiedError.__name__}:
                    found.add(function.name)
    assert found == set(EVIDENCE)
