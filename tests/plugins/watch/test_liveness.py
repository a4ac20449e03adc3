"""Who lives, how the others ended, and what a time-out says of them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, time

import pytest
from tests.processes import idle_process, needs_descriptors

from rankwise.groups.handshake import process_space, started_at
from rankwise.store import HashStore
from rankwise_network.outage import setting
from rankwise_watch.heartbeat import Beat, Beats, own_clock
from rankwise_watch.liveness import Processes
from rankwise_watch.report import absentees, describe_absentees, sentence

pytestmark = needs_descriptors

PATIENCE_S = 10.0
NOW = 1_000_000.0


@contextmanager
def watching(pid: int, **card: str) -> Iterator[Processes]:
    processes = Processes(0)
    told = {"host": "h", "pid": pid, "space": process_space(), "started": started_at(pid), **card}
    processes.learn({1: json.dumps(told).encode()})
    processes.watch(1)
    try:
        yield processes
    finally:
        processes.close()


def test_a_process_that_lives_has_not_ended() -> None:
    with idle_process() as child, watching(child.pid) as processes:
        assert processes.end_of(1) is None
        assert processes.here() == {1}


@pytest.mark.parametrize("reaped", [False, True])
def test_the_signal_that_killed_a_process_is_named(reaped: bool) -> None:
    with idle_process() as child, watching(child.pid) as processes:
        child.kill()
        if reaped:
            child.wait()
        cause = processes.end_of(1, PATIENCE_S)
    # An older kernel forgets the status as soon as the parent has asked for it.
    assert cause == "its process was killed by SIGKILL" or (reaped and cause == "its process has ended")


def test_the_exit_code_of_a_process_is_told() -> None:
    with idle_process(exit_code=3) as child, watching(child.pid) as processes:
        child.stdin.close()
        assert processes.end_of(1, PATIENCE_S) == "its process has ended with exit code 3"


def test_another_process_with_the_same_number_is_not_taken_for_the_rank() -> None:
    with idle_process() as child, watching(child.pid, started="1") as processes:
        assert processes.end_of(1) == "its process has ended"


def test_without_descriptors_a_process_has_ended_once_none_has_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    with idle_process() as child, watching(child.pid, started="") as processes:
        assert (processes.end_of(1), processes.tells_of(1)) == (None, False)
        child.kill()
        child.wait()
        assert processes.end_of(1) == "its process has ended"


def test_a_process_of_another_machine_is_left_alone() -> None:
    with idle_process() as child, watching(child.pid, space="elsewhere") as processes:
        assert (processes.end_of(1), processes.state(1), processes.here()) == (None, "", set())


def test_a_stopped_process_is_told_from_one_that_is_busy() -> None:
    with idle_process() as child, watching(child.pid) as processes:
        os.kill(child.pid, signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        assert processes.state(1) == "stopped by a signal"


def test_descriptors_are_given_back() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with idle_process() as child, watching(child.pid):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_signs_of_life_are_read_by_others() -> None:
    store = HashStore()
    Beats(store, 1).give({"dp": {"pending": []}})
    beats = Beats(store, 0).read([1, 2])
    assert list(beats) == [1]
    assert beats[1].number == 1
    assert beats[1].age_s() < PATIENCE_S


def test_a_malformed_sign_of_life_counts_as_none() -> None:
    store = HashStore()
    store.set("beat/1", b"[1, 2")
    store.set("beat/2", b'{"a": 1}')
    assert Beats(store, 0).read([1, 2, 3]) == {}


@pytest.mark.parametrize("clock", ["another machine's", ""])
def test_silence_between_clocks_is_counted_from_when_it_was_seen(clock: str) -> None:
    beats, beat = Beats(HashStore(), 0), Beat(1, clock, -1e9, NOW, False, {})  # its clock is decades behind
    assert beats.silent_s(1, beat) < PATIENCE_S
    assert beats.silent_s(1, beat) > 0.0


def test_silence_on_one_machine_is_known_at_the_first_look() -> None:
    beats, beat = Beats(HashStore(), 0), Beat(1, own_clock(), monotonic() - 100.0, NOW, False, {})
    assert 100.0 <= beats.silent_s(1, beat) < 100.0 + PATIENCE_S
    assert 100.0 <= beat.age_s() < 100.0 + PATIENCE_S


def test_a_rank_that_never_beat_is_silent_from_when_it_was_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no longer once it has: what is seen first then is not a second silence."""
    now = [1000.0]
    monkeypatch.setattr("rankwise_watch.heartbeat.monotonic", lambda: now[0])
    beats = Beats(HashStore(), 0)
    assert beats.silent_s(1, None) == 0.0
    now[0] += 7.0
    assert beats.silent_s(1, None) == 7.0
    assert beats.silent_s(1, Beat(1, "another machine's", -1e9, NOW, False, {})) == 0.0
    beats.forgive()
    assert beats.silent_s(1, None) == 0.0


@pytest.mark.parametrize("step_s", [30.0, -30.0, 1e6])
def test_the_clock_of_the_day_may_jump(monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    """As it does when it is set by the network, by hand, or after a machine was suspended."""
    store = HashStore()
    Beats(store, 1).give({})
    today = time()
    monkeypatch.setattr("rankwise_watch.heartbeat.time", lambda: today + step_s)
    mine = Beats(store, 0)
    (beat,) = mine.read([1]).values()
    assert mine.silent_s(1, beat) < PATIENCE_S
    assert beat.age_s() < PATIENCE_S


def test_settings_are_seconds_and_zero_is_never(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, expected in (("0.5", 0.5), ("0", float("inf")), ("", 7.0)):
        monkeypatch.setenv("RANKWISE_HEARTBEAT_S", text)
        assert setting("RANKWISE_HEARTBEAT_S", 7.0) == expected
    monkeypatch.setenv("RANKWISE_HEARTBEAT_S", "soon")
    with pytest.raises(ValueError, match="RANKWISE_HEARTBEAT_S is 'soon'"):
        setting("RANKWISE_HEARTBEAT_S", 1.0)


# ---------------------------------------------------------------------- hang reports


def step(op: str, number: int, peer: int | None = None, age_s: float = 0.0) -> dict[str, object]:
    return {"op": op, "number": number, "peer": peer, "message": peer is not None, "at": "train.py:41", "age_s": age_s}


def beat(finished: int, pending: dict[str, object] | None = None, age_s: float = 0.4, left: bool = False) -> Beat:
    """Return the heartbeat of a rank that has finished a broadcast, and perhaps has begun something else."""
    begun = pending if pending is not None and not pending["message"] else step("broadcast", finished)
    told = {
        "begun": begun,
        "finished": step("broadcast", finished),
        "message_begun": None,
        "message_finished": None,
        "pending": [] if pending is None else [pending],
    }
    return Beat(1, "", 0.0, NOW - age_s, left, {"dp": told})


REDUCES = beat(16, step("all_reduce", 17))


@pytest.mark.parametrize(
    ("size", "missed", "beats", "found"),
    [
        (3, [1, 2], {0: REDUCES, 1: REDUCES, 2: beat(16)}, [2]),
        (4, [1], {1: beat(16, step("recv", 0, peer=2)), 2: beat(16, step("recv", 0, peer=3)), 3: beat(16)}, [3]),
        (2, [1], {0: beat(1, step("recv", 0, peer=1)), 1: beat(1, step("recv", 0, peer=0))}, [1]),
        (2, [1], {}, [1]),
    ],
    ids=["one has not come", "who waits for whom", "each waits for the other", "one has told nothing"],
)
def test_the_trail_of_those_who_wait_is_followed_to_its_end(
    size: int, missed: list[int], beats: dict[int, Beat], found: list[int]
) -> None:
    assert absentees(missed, range(size), beats, "dp") == found


FINISHED = "last finished broadcast #16 at train.py:41"


@pytest.mark.parametrize(
    ("last", "end", "expected"),
    [
        (beat(16), None, f"{FINISHED} and is alive (0.4 s ago)"),
        (beat(16, age_s=9.04), None, f"{FINISHED} and sent its last heartbeat 9.0 s ago"),
        (beat(16, step("recv", 3, peer=5)), None, "is in recv #3 from rank 5 at train.py:41 and is alive (0.4 s ago)"),
        (beat(16), "killed", f"{FINISHED} and is gone: killed"),
        (beat(16, left=True), None, f"{FINISHED} and has destroyed its groups"),
        (None, None, "has sent no heartbeat so far"),
        (None, "killed", "is gone: killed"),
        (Beat(1, "", 0.0, NOW + 60, False, {}), None, "has called nothing on group 'dp' and is alive (0.0 s ago)"),
    ],
)
def test_a_report_says_what_a_rank_did_last_and_whether_it_lives(
    monkeypatch: pytest.MonkeyPatch, last: Beat | None, end: str | None, expected: str
) -> None:
    monkeypatch.setattr("rankwise_watch.heartbeat.time", lambda: NOW)
    assert sentence(last, "dp", end, False, 3.0) == expected


def test_a_report_is_one_sentence_for_one_rank() -> None:
    text = "all_reduce #17 on group 'dp', rank 0: not done within 1 s, waiting for rank 2"
    assert describe_absentees(text, [2], [2], {2: "is alive"}) == f"{text}, which is alive"
    assert describe_absentees(text, [3], [2], {3: "is alive"}) == f"{text}; rank 3 is alive"


def test_a_report_of_many_ranks_stays_short() -> None:
    words = {rank: "is alive" for rank in range(100)}
    text = describe_absentees("late", list(range(100)), list(range(100)), words)
    assert text.endswith("rank 3 is alive, and 96 more ranks")
