"""A message that is copied from its sender's memory counts only if its sender has not given the group up meanwhile.

A sender whose time is up may write to its array at once: what a slow reader finds there then is not what was sent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from rankwise.errors import DistError, DistTimeoutError, PeerDiedError
from rankwise_gloo_tcp.engine.failure import FailureState
from rankwise_gloo_tcp.engine.moving import Moving
from rankwise_gloo_tcp.engine.peers import Fetching
from rankwise_gloo_tcp.machine import peer_memory
from rankwise_gloo_tcp.protocol.frames import Header, Kind, notice, read_notice
from rankwise_gloo_tcp.protocol.matching import Arrival

pytestmark = pytest.mark.skipif(not peer_memory.available(), reason="nobody reads another process's memory here")

SENT = np.arange(1000, dtype=np.uint8)


class Receive:
    """A receive, and how it has ended."""

    def __init__(self) -> None:
        self.buffer, self.done, self.error = memoryview(bytearray(SENT.nbytes)), False, None

    def end(self, error: DistError | None = None, source: int | None = None) -> None:
        self.done, self.error = True, error


class World:
    """A receiver and one sender, who offers this process's own memory."""

    def __init__(self, in_memory: bool) -> None:
        self.failures: list[DistError] = []
        self.failure_state = FailureState(self.failures.append)
        self.taken: list[Receive] = []
        self.news: Callable[[], object] = bool
        connection = SimpleNamespace(in_memory=in_memory, receive=lambda: self.news())
        card = SimpleNamespace(pid=os.getpid())
        peers = [SimpleNamespace(), SimpleNamespace(connection=connection, card=card, readable=True)]
        dispatcher = SimpleNamespace(
            inbox=SimpleNamespace(fetched=lambda arrival, receive, copied: self.taken.append(receive)),
            peer_gave_up=lambda source, error, died: None,
            peer_died=None,
        )
        of_peers = cast(Any, Peers(peers))
        fetching = self.fetching = Fetching(threading.Lock(), cast(Any, peers), self.failure_state)
        config = cast(Any, SimpleNamespace(names=(0, 1)))
        self.moving = Moving(config, of_peers, cast(Any, dispatcher), fetching, self.failure_state)

    def fetch(self) -> Receive:
        receive = cast(Any, Receive())
        header = Header(Kind.OFFER, length=SENT.nbytes, address=SENT.ctypes.data)
        self.fetching.add(cast(Any, Arrival(1, header, None)), receive)
        self.moving.without_lock()
        return cast(Receive, receive)


class Peers(list[Any]):
    """Peers of which no more is asked."""

    may_have_news = look_at = None


def test_what_was_copied_while_the_group_was_as_good_as_ever_is_taken() -> None:
    for in_memory in (True, False):
        world = World(in_memory)
        receive = world.fetch()
        assert world.taken == [receive]
        assert bytes(receive.buffer) == SENT.tobytes()


@pytest.mark.parametrize("error", [DistTimeoutError("late"), PeerDiedError(2, "h", "gone")])
def test_what_was_copied_from_one_that_has_given_up_at_the_board_is_not(error: DistError) -> None:
    world = World(True)
    world.moving.given_up = lambda: ([1], notice(error, 1))
    receive = world.fetch()
    assert not world.taken
    assert world.failure_state.stranded == [receive]
    world.moving.settle()
    assert [str(each) for each in world.failures] == [str(read_notice(notice(error, 1)))]


def test_one_that_has_given_up_for_itself_does_not_matter_to_messages_of_others() -> None:
    world = World(True)
    world.moving.given_up = lambda: ([0], notice(DistTimeoutError("late"), 0))
    assert world.fetch() in world.taken


def test_what_was_copied_from_one_whose_notice_has_come_through_its_socket_is_not_taken() -> None:
    world = World(False)
    world.news = lambda: world.failure_state.fail(DistTimeoutError("late"))
    receive = world.fetch()
    assert not world.taken
    assert world.failure_state.stranded == [receive]
