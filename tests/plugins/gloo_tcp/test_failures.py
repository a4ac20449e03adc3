"""What the survivors hear when a rank dies, when the group is given up, and when strangers call."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from tests.plugins.gloo_tcp import programs

from rankwise_testing import RankPool

pytestmark = pytest.mark.usefixtures("both_ways")

#: Well below the time-out of the groups, 30 s, for processes that are started meanwhile.
LEEWAY_S = 10.0


def run(
    tmp_path: Path,
    size: int,
    transport: str,
    function: Callable[..., object],
    *args: object,
    doomed: Collection[int] = (),
    **env: str,
) -> tuple[list[object], float]:
    """Call a function of `programs` on fresh ranks, any of which may die; return what each returned, and the time."""
    with RankPool(size, env={"RANKWISE_GLOO_TRANSPORT": transport, **env}) as pool:
        start = time.perf_counter()
        found = pool.run(programs.meeting_at, f"file://{tmp_path / 'meet'}", function, *args, doomed=doomed)
        return found, time.perf_counter() - start


@pytest.mark.parametrize("transport", ["tcp", "shm"])
@pytest.mark.parametrize(("op", "victim"), [("all_reduce", 1), ("async", 0), ("barrier", 2), ("small", 1), ("recv", 0)])
def test_all_survivors_name_the_rank_that_was_killed(tmp_path: Path, transport: str, op: str, victim: int) -> None:
    found, took = run(tmp_path, 3, transport, programs.somebody_dies, op, victim, doomed=[victim])
    assert found.pop(victim) is None
    texts = {text for text, _ in found}  # type: ignore[misc]
    assert [rank for _, rank in found] == [victim, victim]  # type: ignore[misc]
    assert len(texts) == 1
    assert took < min(LEEWAY_S, 25)


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_an_abort_from_another_thread_ends_the_calls_of_all_ranks(tmp_path: Path, transport: str) -> None:
    found, took = run(tmp_path, 3, transport, programs.abort_from_another_thread)
    for texts in found:
        assert all("on purpose" in text for text in texts), found  # type: ignore[attr-defined]
    assert took < min(LEEWAY_S, 25)


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_an_abort_before_there_is_a_connection_is_told_over_it(tmp_path: Path, transport: str) -> None:
    found, _ = run(tmp_path, 2, transport, programs.abort_before_a_connection, RANKWISE_HEARTBEAT_S="25")
    (first, took_s), (second, _) = found  # type: ignore[misc]
    assert first == second
    assert "on purpose" in first
    assert took_s < min(LEEWAY_S, 15), "told by the next heartbeat, or at the time-out"


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_strangers_are_not_let_in_and_do_not_disturb(tmp_path: Path, transport: str) -> None:
    found, _ = run(tmp_path, 3, transport, programs.stand_at_the_door, 210)
    assert found == [0, 0, 0]


@pytest.mark.parametrize("size", [2, 3])
def test_groups_of_one_host_take_few_descriptors(tmp_path: Path, size: int) -> None:
    """The memory, what wakes this rank and what sleeps, however many peers; all else is the process's."""
    found, _ = run(tmp_path, size, "auto", programs.descriptors_of_groups, 20)
    assert found == [3] * size


def secret_file(path: Path) -> None:
    path.write_text(secrets.token_hex(32))
    path.chmod(0o600)


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_a_job_with_a_secret_guards_its_frames_between_hosts(tmp_path: Path, transport: str) -> None:
    secret_file(tmp_path / "secret")
    found, _ = run(tmp_path, 3, transport, programs.with_a_secret, RANKWISE_SECRET_FILE=str(tmp_path / "secret"))
    assert found == [transport == "tcp"] * 3


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_different_secrets_end_in_an_error_that_says_so(tmp_path: Path, transport: str) -> None:
    for rank in range(2):
        secret_file(tmp_path / f"secret{rank}")
    files = str(tmp_path / "secret{rank}")
    found, took = run(tmp_path, 2, transport, programs.different_secrets, RANKWISE_SECRET_FILE=files)
    assert any("secret" in str(text) for text in found), found
    assert all(found)
    assert took < 2 * LEEWAY_S


def test_a_group_given_up_in_the_middle_of_a_message_says_why(tmp_path: Path) -> None:
    found, took = run(tmp_path, 2, "tcp", programs.abort_in_the_middle_of_a_message)
    assert all("on purpose" in str(text) for text in found), found
    assert took < 1.5 * LEEWAY_S
