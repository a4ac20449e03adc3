"""The store of the ranks, which the launcher serves: who has it, whom it outlives, and when it ends."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.command_line import Launcher
from tests.core import store_programs as programs
from tests.core.store_programs import PATIENCE_S, ranks_of
from tests.processes import free_port, held

from rankwise import DistNetworkError, TCPStore
from rankwise_launch.config import LaunchError
from rankwise_launch.job_store import JobStore
from rankwise_network import secret

TIMEOUT_S = 40
PRELOAD = ("--preload", "numpy,rankwise")


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    made = Launcher(tmp_path, TIMEOUT_S)
    made.environment["OMP_NUM_THREADS"] = "1"  # a library that starts threads cannot be preloaded
    return made


def said(text: str) -> list[str]:
    """Return the lines of all ranks without their numbers."""
    return sorted(line.partition(": ")[2] for line in text.splitlines())


@pytest.mark.parametrize("preload", [(), PRELOAD], ids=["by themselves", "forked"])
def test_the_launcher_serves_and_no_rank_does(launcher: Launcher, preload: tuple[str, ...]) -> None:
    told = launcher.folder / "launcher"
    with launcher.start("-n", "3", *preload, *ranks_of(programs.look, told)) as process:
        (told.with_suffix(".new")).write_text(str(process.pid), encoding="ascii")
        told.with_suffix(".new").rename(told)
        out, err = process.communicate(TIMEOUT_S)
    assert (process.returncode, said(out)) == (0, ["free the launcher's"] * 3), err


def test_a_program_that_sets_a_secret_of_its_own_meets_at_rank_0(launcher: Launcher) -> None:
    done = launcher.run("-n", "2", *ranks_of(programs.begin_with_a_secret_of_the_program))
    assert (done.returncode, said(done.stdout)) == (0, ["began"] * 2), done.stderr


def test_a_rank_that_is_alone_needs_nobody_to_serve(launcher: Launcher) -> None:
    assert launcher.run("-n", "1", *ranks_of(programs.tell_of_the_store)).stdout == "[0]: none\n"


def test_the_store_is_there_after_rank_0_and_the_others_name_it(launcher: Launcher) -> None:
    done = launcher.run("-n", "3", *ranks_of(programs.outlive_rank_0))
    assert done.returncode == 0, done.stderr
    survivors, *errors = said(done.stdout)[1:]
    assert said(done.stdout)[0] == survivors == "2 survivors"
    assert len(errors) == 2
    for error in errors:
        assert re.match(r"PeerDiedError rank 0 on \S+ is gone: its process has ended", error), error


def test_a_rank_0_that_dies_in_a_meeting_is_named_to_those_who_wait(launcher: Launcher) -> None:
    done = launcher.run("-n", "3", *ranks_of(programs.die_in_a_meeting))
    assert done.returncode == 137, done
    assert re.fullmatch(r"\[1\]: PeerDiedError rank 0 on \S+ is gone: its process was killed by .*\n", done.stdout)
    assert "rank 0 failed first: killed by SIGKILL" in done.stderr


@pytest.mark.parametrize("preload", [(), PRELOAD], ids=["by themselves", "forked"])
def test_ranks_begin_again_in_the_one_store_and_leave_nothing_there(
    launcher: Launcher, preload: tuple[str, ...]
) -> None:
    done = launcher.run("-n", "3", *preload, *ranks_of(programs.live_twice))
    assert (done.returncode, said(done.stdout)) == (0, ["3 3 3"] * 3), done.stderr


@pytest.mark.parametrize("preload", [(), PRELOAD], ids=["by themselves", "forked"])
def test_each_attempt_has_a_store_of_its_own(launcher: Launcher, preload: tuple[str, ...]) -> None:
    done = launcher.run("-n", "2", "--max-restarts", "1", *preload, *ranks_of(programs.fail_once))
    assert done.returncode == 0, done.stderr
    assert said(done.stdout) == ["attempt 0 finds 0"] * 2 + ["attempt 1 finds 0"] * 2


def test_where_the_program_chooses_another_master_rank_0_serves(launcher: Launcher) -> None:
    done = launcher.run("-n", "2", *ranks_of(programs.choose_another_master))
    assert (done.returncode, said(done.stdout)) == (0, ["False", "True"]), done.stderr


def test_a_launcher_within_a_job_serves_a_store_of_its_own(launcher: Launcher) -> None:
    done = launcher.run("-n", "2", *ranks_of(programs.launch_within))
    assert (done.returncode, said(done.stdout)) == (0, ["0 0 2 "] * 2), done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_launcher_that_serves(launcher: Launcher, number: int, code: int) -> None:
    with launcher.start("-n", "2", *ranks_of(programs.wait_for_more)) as process:
        assert process.stdout.readline() == "[0]: waiting\n"
        process.send_signal(number)
        process.communicate(TIMEOUT_S)
    assert process.returncode == code


# ---------------------------------------------------------------------- the store by itself


def client(store: JobStore, job: bytes) -> TCPStore:
    return TCPStore("127.0.0.1", store.port, timeout=PATIENCE_S, secret=job, wait_for_server=False)


def begun() -> tuple[JobStore, secret.Secret]:
    job = secret.new()
    return JobStore("127.0.0.1", free_port(), job), job


def test_who_comes_early_waits_until_it_is_served() -> None:
    store, job = begun()
    found: list[bytes] = []

    def come() -> None:
        with client(store, job) as early:
            early.set("key", "value")
            found.append(early.get("key"))

    thread = threading.Thread(target=come)
    thread.start()
    try:
        store.serve()
        thread.join(PATIENCE_S)
    finally:
        store.close()
    assert found == [b"value"]


@pytest.mark.parametrize("use", [JobStore.load, JobStore.serve], ids=["unused", "used"])
def test_its_end_leaves_nothing_behind(use: Callable[[JobStore], None]) -> None:
    for count in range(2):  # the first time something is loaded that stays
        before = held()
        store, job = begun()
        use(store)
        if use is JobStore.serve:
            client(store, job).close()
        store.close()
        store.close()
        assert count == 0 or held() == before
    with pytest.raises(DistNetworkError):
        client(store, job)


def test_who_does_not_know_the_secret_does_not_get_in() -> None:
    store, _ = begun()
    store.serve()
    try:
        with pytest.raises(DistNetworkError, match="another job secret"):
            client(store, secret.new())
    finally:
        store.close()


def test_the_port_that_is_kept_for_the_program_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = free_port()
    monkeypatch.setenv("RANKWISE_PORTS", str(kept))
    with pytest.raises(DistNetworkError, match="all of these ports are in use"):
        JobStore("127.0.0.1", kept, secret.new())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_no_other_address_is_served_than_one_of_this_machine(host: str) -> None:
    with pytest.raises((ValueError, OSError)):
        JobStore(host, 0, secret.new())


def test_what_the_system_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from rankwise_launch import serving

    def refuse(*_: object) -> None:
        raise OSError("no more of these")

    store, _ = begun()
    monkeypatch.setattr(serving, "Pool", refuse)
    with pytest.raises(LaunchError, match="cannot serve the store in which the ranks meet: no more of these"):
        store.serve()
    store.close()
