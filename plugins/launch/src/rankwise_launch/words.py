"""What launchers say of themselves in the store in which they meet, and when one of them is taken to be gone.

There are no threads or clocks here: who asks says how much time has passed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from rankwise.errors import DistError, DistTimeoutError

if TYPE_CHECKING:
    from rankwise.stores import Store

#: What a launcher says last: it comes to its end. What is said of it by the process that guards its ranks, and by the
#: server of the store once its connection has ended.
LEFT, KILLED, GONE = b"left", b"killed", b"gone"
#: How long one may be silent whose connection has ended: if it is there it has another by then, and if something is
#: left that guards its ranks, that has told of the end of these.
BREAK_S = 1.0


class Loss(NamedTuple):
    """A launcher that is there no more."""

    node_rank: int
    text: str


def word_of(name: object) -> str:
    """Return where a launcher says in the store that it is there."""
    return f"present/{name}"


class Voice:
    """What a launcher says again and again.

    Args:
        store: Where the launchers meet.
        name: What tells it from the others.
        passing: What the store raises while it is out of reach for a while.
    """

    def __init__(self, store: Store, name: object, passing: tuple[type[DistError], ...] = (DistTimeoutError,)) -> None:
        self._key, self._passing = word_of(name), passing
        #: Only the server of a `TCPStore` knows when a connection ends.
        self._set = getattr(store, "set_with_will", None) or (lambda key, word, will: store.set(key, word))
        self._said = self._answers = 0

    def say(self) -> None:
        """Say that this launcher is there.

        Raises:
            DistError: The store does not answer, or is gone.
        """
        self._said += 1
        self._set(self._key, str(self._said), GONE)
        self._answers += 1

    def reply(self) -> bytes:
        """Say so; return node 0's word, which is another one each time that it has answered.

        Raises:
            DistError: The store is gone.
        """
        with suppress(*self._passing):
            self.say()
        return b"%d" % self._answers


class Watch:
    """Looks after one launcher, by its words."""

    def __init__(self) -> None:
        self._said = b""
        self._silent_s = 0.0

    def why_gone(self, word: bytes, passed_s: float, limit_s: float) -> str:
        """Say why a launcher is taken to be gone; "" if it is not.

        Args:
            word: What it has said last.
            passed_s: How much time has passed since the last look.
            limit_s: How long it may be silent.
        """
        self._silent_s = self._silent_s + passed_s if word == self._said else 0.0
        self._said = word
        if word == KILLED:
            return "its launcher was killed"
        if word == LEFT:
            return "its launcher has ended"
        if word == GONE and self._silent_s > min(BREAK_S, limit_s):
            return "its launcher is gone: its connection has ended"
        if self._silent_s > limit_s:
            return f"nothing has been heard of its launcher for {limit_s:g} s; it, its host or the network is gone"
        return ""
