"""The key of a group that is being made: ranks that have ended a meeting may begin with another of the same name."""

import threading

import pytest

from rankwise_ray import meeting

PATIENCE_S = 60.0


class Keys:
    """A key-value store like Ray's, in which a look at a key takes until it is let go on."""

    def __init__(self):
        self.held, self.looked, self.go_on = {}, threading.Event(), threading.Event()

    def _internal_kv_get(self, key, namespace):
        found = self.held.get(key)
        self.looked.set()
        assert self.go_on.wait(PATIENCE_S)
        return found

    def _internal_kv_del(self, key, namespace):
        del self.held[key]


@pytest.fixture
def keys(monkeypatch):
    made = Keys()
    monkeypatch.setattr(meeting, "kv", made)
    return made


def test_a_meeting_that_was_cancelled_takes_no_key_away_later(keys):
    ended = meeting.Joining("team", 0, 2, create=None, place="here")
    ended._mine = keys.held[ended._key] = b"the first"
    leaving, cancelling = threading.Thread(target=ended._withdraw), threading.Thread(target=ended.cancel)
    leaving.start()
    assert keys.looked.wait(PATIENCE_S)
    cancelling.start()
    cancelling.join(0.2)
    early = not cancelling.is_alive()
    if early:
        keys.held[ended._key] = b"the second"  # as the next group of that name does
    keys.go_on.set()
    for thread in (leaving, cancelling):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert not early, f"cancelled before the key was gone; the next group's is then: {keys.held}"
    assert keys.held == {}
