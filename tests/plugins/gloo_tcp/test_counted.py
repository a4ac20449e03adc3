"""Every call takes the warm path, on every layout and on all terms: Python's calls are counted, and not the time."""

from __future__ import annotations

from pathlib import Path

import counted_programs
import pytest
from machines import Hosts, between_hosts, run

from rankwise_testing import run_ranks

PATIENCE_S = 120.0
#: What a warm call takes at the most, with the compiled parts and without them.
COMPILED = {
    "plain": 3,
    **dict.fromkeys(("timeout", "timeout, int", "timeout, timedelta"), 4),
    "async_op": 12,
    "async_op with timeout": 13,
}
#: And the first call of each kind: of a collective, what asks the table, and makes a digest of what all ranks compare.
FIRST_MESSAGE, FIRST_BARRIER, FIRST_COLLECTIVE = 12, 8, 20
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
    assert run_ranks(counted_programs.messages, 2, 12, nbytes, kept, env=env, timeout=PATIENCE_S) == [{}, {}]


@pytest.mark.parametrize("nbytes", [8, 4096])
def test_receives_that_are_posted_are_short_in_memory(nbytes: int) -> None:
    pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    env = {"RANKWISE_GLOO_TRANSPORT": "shm", "RANKWISE_NATIVE": "on"}
    assert run_ranks(counted_programs.posted, 2, 13, nbytes, env=env, timeout=PATIENCE_S) == [{}, {}]


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


def test_first_calls_load_nothing_and_make_little() -> None:
    pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    env = {"RANKWISE_GLOO_TRANSPORT": "shm", "RANKWISE_NATIVE": "on"}
    for found, loaded in run_ranks(counted_programs.first_calls, 2, env=env, timeout=PATIENCE_S):
        assert not loaded
        assert len(found) == 14
        messages = {name: count for name, count in found.items() if name.endswith(("send", "recv"))}
        assert max(messages.values()) <= FIRST_MESSAGE, messages
        assert found["barrier"] <= FIRST_BARRIER
        assert max(found.values()) <= FIRST_COLLECTIVE, found


@pytest.mark.parametrize("layout", TRANSPORTS)
def test_asynchronous_calls_are_short_without_them(layout: str) -> None:
    env = {"RANKWISE_GLOO_TRANSPORT": TRANSPORTS[layout], "RANKWISE_NATIVE": "off"}
    assert run_ranks(counted_programs.plainest, 2, PYTHON, env=env, timeout=PATIENCE_S) == [{}, {}]


@between_hosts
@pytest.mark.parametrize("where", [[0, 0, 1, 1], [0, 1, 1, 1]], ids=["2+2", "1+3"])
def test_so_they_are_among_hosts_of_several_ranks(hosts: Hosts, tmp_path: Path, where: list[int]) -> None:
    pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    found = run(
        hosts, tmp_path, where, counted_programs.everything, COMPILED, timeout_s=PATIENCE_S, RANKWISE_NATIVE="on"
    )
    assert found == [{}] * 4
