"""Whether the launchers of all nodes are there: each says so again and again, and notices whose word is missing.

Node 0, which serves their store, looks after all others, and these after node 0. When that is lost they close the
store, so that none waits for an answer.
"""

from __future__ import annotations

import threading
from time import monotonic, sleep
from typing import TYPE_CHECKING, NamedTuple

from rankwise.backends import start_thread
from rankwise.errors import DistError
from rankwise_launch.config import ExitCode, LaunchError
from rankwise_launch.words import KILLED, LEFT, Voice, Watch, word_of
from rankwise_network import outage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rankwise_stores import TCPStore

__all__ = ["Loss", "Presence", "silence_s"]

#: How often each launcher says that it is there; with more nodes than so many a second more rarely.
_EVERY_S, _NODES_A_SECOND = 0.5, 500
#: How long none may have been heard of, and how often each says its word in that time at least.
_SILENCE_S, _WORDS = 5.0, 5
_LIMIT = "RANKWISE_HEARTBEAT_LIMIT_S"
#: How many intervals a look may count for: one that took longer was suspended itself, and says nothing of the others.
_LATE = 2
_NOT_YET = b"0"


class Loss(NamedTuple):
    """A launcher that is there no more."""

    node_rank: int
    text: str


def silence_s() -> float:
    """Return how long nothing may be heard of a launcher: as long as of a rank on another host.

    Raises:
        LaunchError: What is set is no number.
    """
    try:
        return max(outage.setting(_LIMIT, _SILENCE_S), outage.limit_s())
    except ValueError as error:
        raise LaunchError(ExitCode.USAGE, str(error)) from None


class Presence:
    """This launcher's word, and its look at the others.

    Args:
        store: Where the launchers meet; this one has said its first word and taken its place.
        node_rank: Which node this is.
        nnodes: How many there are.
        limit_s: How long nothing may be heard of one.

    Attributes:
        lost: The first that was found to be gone.
        complete: Whether all nodes have come, so that one that has said nothing yet is missed too.
    """

    def __init__(self, store: TCPStore, node_rank: int, nnodes: int, limit_s: float) -> None:
        self.lost: Loss | None = None
        self.complete = False
        self._node_rank = node_rank
        self._every_s = max(min(_EVERY_S, limit_s / _WORDS), nnodes / _NODES_A_SECOND)
        self._limit_s = max(limit_s, _WORDS * self._every_s)
        self._store = store.view(self._every_s)
        self._keys = [word_of(node) for node in range(nnodes)]
        self._watches = [Watch() for _ in range(nnodes)]
        self._voice = Voice(self._store, node_rank)
        if node_rank == 0:
            for key in self._keys:
                store.compare_set(key, b"", _NOT_YET)  # some have come already, and one may have left
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankwise presence", daemon=True)
        start_thread(self._thread)

    def leave(self) -> None:
        """Say that this launcher comes to its end."""
        self._closing.set()
        self._thread.join()
        self._store.set(self._keys[self._node_rank], LEFT)

    def await_others(self, within_s: float) -> None:
        """On node 0, wait until all others that have come have left, or are lost."""
        end = monotonic() + within_s
        while any(self._stay()) and monotonic() < end:
            sleep(0.02)

    def _stay(self) -> Iterator[bool]:
        away = (LEFT, KILLED) if self.complete else (_NOT_YET, LEFT, KILLED)
        for node, word in enumerate(self._store.multi_get(self._keys)):
            is_lost = self.lost is not None and self.lost.node_rank == node
            yield node != 0 and word not in away and not is_lost

    def _run(self) -> None:
        looked_at = monotonic()
        while not self._closing.wait(self._every_s) and self.lost is None:
            try:
                words = self._words() if self._node_rank == 0 else {0: self._voice.reply()}
            except (DistError, OSError) as error:
                self._lose(0, f"its launcher is gone: {error}")
                return
            now = monotonic()
            self._judge(words, min(now - looked_at, _LATE * self._every_s))
            looked_at = now

    def _words(self) -> dict[int, bytes]:
        """Return what the nodes have said last that have come."""
        words = enumerate(self._store.multi_get(self._keys))
        return {node: word for node, word in words if node != 0 and (self.complete or word != _NOT_YET)}

    def _judge(self, words: dict[int, bytes], passed_s: float) -> None:
        for node, word in words.items():
            if text := self._watches[node].why_gone(word, passed_s, self._limit_s):
                self._lose(node, text)

    def _lose(self, node: int, text: str) -> None:
        self.lost = self.lost or Loss(node, text)
        if node == 0:
            self._store.close()
