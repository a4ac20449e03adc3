"""Every call takes the warm path, on every layout and on all terms: Python's calls are counted, and not the time."""

from __future__ import annotations

from pathlib import Path

import counted_programs
import pytest
from machines import Hosts, between_hosts, run

from rankwise_testing import run_ranks

PATIENCE_S = 120.0
#: What a warm call takes at the most, with the compiled parts and without them.
WITHOUT_PYTHON = ("plain", "timeout", "timeout, int", "timeout, timedelta")
COMPILED = {**dict.fromkeys(WITHOUT_PYTHON, 0), "async_op": 12, "async_op with timeout": 13}
#: Hosts whose ranks have others to wait for in two ways now and then look for them in Python.
AMONG_HOSTS = COMPILED | dict.fromkeys(WITHOUT_PYTHON, 3)
#: And the first call of each kind: of a collective, what makes a digest of what all ranks compare; between hosts also
#: what finds up to how many bytes go along.
FIRST_BARRIER, FIRST_COLLECTIVE = {"one host": 1, "one rank a host": 14}, {"one host": 2, "one rank a host": 20}
#: And the first of a new size.
NEW_SIZE = 2
#: And the first message; between hosts the first work that C does not make loads the module of such.
FIRST_MESSAGE, FIRST_WORK, WORKS = 10, {"one host": 10, "one rank a host": 150}, {"rankwise.calls.message_work"}
PYTHON = {"async_op": 16, "async_op with timeout": 17}
TRANSPORTS = {"one host": "shm", "one rank a host": "tcp"}


@pytest.mark.parametrize("layout", TRANSPORTS)
def test_warm_calls_are_short_with_the_compiled_parts(layout: str) -> None:
    pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    env = {"RANKWISE_GLOO_TRANSPORT": TRANSPORTS[layout], "RANKWISE_NATIVE": "on"}
    assert run_ranks(counted_programs.everything, 2, COMPILED, env=env, timeout=PATIENCE_S, fork=False) == [{}, {}]


@pytest.mark.parametrize("kept", [False, True], ids=["", "kept"])
@pytest.mark.parametrize("nbytes", [8, 4096])
@pytest.mark.parametrize("layout", TRANSPORTS)
def test_messages_that_are_begun_are_short_with_the_compiled_parts(layout: str, nbytes: int, kept: bool) -> None:
    pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    env = {"RANKWISE_GLOO_TRANSPORT": TRANSPORTS[layout], "RANKWISE_NATIVE": "on"}
    most = (0 if layout == "one host" else 4) + 7 * kept
    assert run_ranks(counted_programs.messages, 2, most, nbytes, kept, env=env, timeout=PATIENCE_S) == [{}, {}]


@pytest.mark.parametrize("layout", TRANSPORTS)
def test_messages_kept_of_another_rank_are_in_nobodys_way(layout: str) -> None:
    pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    env = {"RANKWISE_GLOO_TRANSPORT": TRANSPORTS[layout], "RANKWISE_NATIVE": "on"}
    most = 0 if layout == "one host" else 4
    assert run_ranks(counted_programs.kept_of_another, 3, most, env=env, timeout=PATIENCE_S) == [{}] * 3


@pytest.mark.parametrize("nbytes", [8, 4096])
def test_receives_that_are_posted_are_short_in_memory(nbytes: int) -> None:
    pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    env = {"RANKWISE_GLOO_TRANSPORT": "shm", "RANKWISE_NATIVE": "on"}
    assert run_ranks(counted_programs.posted, 2, 0, nbytes, env=env, timeout=PATIENCE_S) == [{}, {}]


@pytest.mark.parametrize("posted", [False, True], ids=["recv", "irecv"])
def test_a_rank_that_sleeps_for_a_message_is_woken_without_python(posted: bool) -> None:
    pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    env = {"RANKWISE_GLOO_TRANSPORT": "shm", "RANKWISE_NATIVE": "on"}
    assert run_ranks(counted_programs.late, 2, 13 if posted else 4, posted, env=env, timeout=PATIENCE_S) == [[], []]


def test_credit_is_given_without_python() -> None:
    """Some 12 MiB go each way, three times what may travel without any."""
    pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    env = {"RANKWISE_GLOO_TRANSPORT": "shm", "RANKWISE_NATIVE": "on"}
    assert run_ranks(counted_programs.credited, 2, 800, 16 << 10, env=env, timeout=PATIENCE_S) == [set(), set()]


@pytest.mark.parametrize("layout", TRANSPORTS)
def test_first_calls_load_nothing_and_make_little(layout: str) -> None:
    pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    env = {"RANKWISE_GLOO_TRANSPORT": TRANSPORTS[layout], "RANKWISE_NATIVE": "on"}
    for found, new_sizes, loaded in run_ranks(counted_programs.first_calls, 2, env=env, timeout=PATIENCE_S):
        assert loaded == (set() if layout == "one host" else loaded & WORKS)
        assert len(found) == 14
        works = [found.pop(name) for name in ("isend", "irecv") if name in found]
        assert max(works) <= FIRST_WORK[layout], works
        messages = {name: count for name, count in found.items() if name.endswith(("send", "recv"))}
        assert max(messages.values()) <= FIRST_MESSAGE, messages
        assert found["barrier"] <= FIRST_BARRIER[layout]
        found = {name: count for name, count in found.items() if name not in messages}
        assert max(found.values()) <= FIRST_COLLECTIVE[layout], found
        assert len(new_sizes) == 12
        assert max(new_sizes.values()) <= NEW_SIZE, new_sizes


@pytest.mark.parametrize("layout", TRANSPORTS)
def test_asynchronous_calls_are_short_without_them(layout: str) -> None:
    env = {"RANKWISE_GLOO_TRANSPORT": TRANSPORTS[layout], "RANKWISE_NATIVE": "off"}
    assert run_ranks(counted_programs.plainest, 2, PYTHON, env=env, timeout=PATIENCE_S) == [{}, {}]


@between_hosts
@pytest.mark.parametrize("where", [[0, 0, 1, 1], [0, 1, 1, 1]], ids=["2+2", "1+3"])
def test_so_they_are_among_hosts_of_several_ranks(hosts: Hosts, tmp_path: Path, where: list[int]) -> None:
    pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    found = run(
        hosts, tmp_path, where, counted_programs.everything, AMONG_HOSTS, timeout_s=PATIENCE_S, RANKWISE_NATIVE="on"
    )
    assert found == [{}] * 4
