"""The watcher while ranks meet: a process that has ended before anyone could watch it."""

from __future__ import annotations

import json
from queue import SimpleQueue

import pytest
from tests.processes import idle_process, needs_descriptors

from rankwise.errors import PeerDiedError
from rankwise.groups.handshake import process_space, started_at, told_by
from rankwise.groups.world import World
from rankwise.store import HashStore, PrefixStore
from rankwise_watch.watcher import Watcher

PATIENCE_S = 10.0

pytestmark = needs_descriptors


def card_of_an_ended_process() -> str:
    """Return what a rank has told of itself whose parent has been told of its end already."""
    with idle_process() as child:
        card = {"host": "node7", "pid": child.pid, "space": process_space(), "started": started_at(child.pid)}
        child.communicate(timeout=PATIENCE_S)
    return json.dumps(card)


def test_a_rank_that_has_come_and_ended_before_it_was_looked_at_is_named() -> None:
    store = HashStore()
    store.set("meet/rank/1", card_of_an_ended_process())
    place = PrefixStore("meet", store)
    watcher = Watcher(World(), store, 0, range(3), dict)  # rank 2 has yet to come
    try:
        with watcher.meeting(place, (0, 1, 2), "making group 'dp'"):
            said = told_by(place.get("verdict", timeout=PATIENCE_S).decode())
    finally:
        watcher.stop()
    assert str(said) == "rank 1 on node7 is gone: its process has ended, during making group 'dp'"
    assert isinstance(said, PeerDiedError)
    assert said.rank == 1


@pytest.mark.parametrize("is_kept_elsewhere", [False, True])
@pytest.mark.parametrize("every_s", ["0.05", "0", "60"])
def test_heartbeats_bring_the_verdict_along_where_they_come_often(
    monkeypatch: pytest.MonkeyPatch, every_s: str, is_kept_elsewhere: bool
) -> None:
    monkeypatch.setenv("RANKWISE_HEARTBEAT_S", every_s)
    store, heard = HashStore(), SimpleQueue[bytes]()
    groups = HashStore() if is_kept_elsewhere else store
    watcher = Watcher(World(), store, 0, range(2), dict)
    try:
        assert watcher.tells_verdicts == (every_s == "0.05")
        place = PrefixStore("made", PrefixStore("group-1", groups))
        with watcher.meeting(place, (0, 1), "making group 'dp'", heard.put):
            place.set("verdict", "rank 1: ValueError: no")
            if watcher.tells_verdicts:
                assert heard.get(timeout=PATIENCE_S) == b"rank 1: ValueError: no"
        assert groups.check(["group-1/made/verdict"])
    finally:
        watcher.stop()


def test_a_flaw_in_what_tells_its_progress_does_not_silence_a_rank(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RANKWISE_HEARTBEAT_S", "0.05")
    store, asked = HashStore(), SimpleQueue[None]()

    def progress() -> dict[str, object]:
        asked.put(None)
        raise LookupError("a flaw")

    watcher = Watcher(World(), store, 0, range(2), progress)
    try:
        first = json.loads(store.get("watch/beat/0", timeout=PATIENCE_S))
        for _ in range(3):
            asked.get(timeout=PATIENCE_S)
        later = json.loads(store.get("watch/beat/0"))
    finally:
        watcher.stop()
    assert later[0] > first[0]
    assert first[-1] == later[-1] == {}
    assert "the watcher has met an error, and goes on" in caplog.text
    assert "LookupError: a flaw" in caplog.text
