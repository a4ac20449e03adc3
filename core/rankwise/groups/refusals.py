"""What members of a group tell each other when one of them could not make its communicators."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Sequence
from time import monotonic

from rankwise import errors
from rankwise.basics import interrupts as interrupts
from rankwise.errors import DistBackendError, DistNetworkError, DistTimeoutError, GroupAbortedError, PeerDiedError
from rankwise.groups.handshake import death_verdict, interrupted, told_by
from rankwise.store import Store
from rankwise.store.patience import EXCHANGE

__all__ = ["MADE", "VERDICT", "Heed", "prefer", "refuse", "see_nothing"]

#: Where in a group's store they are counted who have made their communicators or could not, and where it says how it
#: came out.
MADE, VERDICT = "made/count", "made/verdict"
#: How long after a look into the store another is worth while, at first and at the most; each time four times as long,
#: so that many ranks that begin for long ask little. Where cards are exchanged a rank is told without asking, and where
#: there is a watcher its heartbeats bring the verdict along.
_PAUSE_S, _LONGER, _LONGEST_PAUSE_S = 0.25, 4, 16.0
#: Errors that tell of another rank's end, whatever that came from.
_CONSEQUENCES = (DistNetworkError, DistTimeoutError, PeerDiedError, ConnectionError, TimeoutError)


def refuse(store: Store, rank: int, backends: Sequence[str], error: BaseException, count: bool) -> str:
    """Write why this rank could not, unless another one has before, and return what stands there.

    Those that wait in an exchange of one of the backends are told there, too. With `count` this rank is counted, as
    those are that have made their communicators.
    """
    text = f"rank {rank}: {type(error).__name__}: {error}"
    if interrupts.is_a_handlers(error):
        text = interrupted("making it", rank, error)
    mine = death_verdict(error, "") if isinstance(error, PeerDiedError) else text
    places = [VERDICT, *(f"{backend}/{EXCHANGE}" for backend in backends)]
    first = store._claim(places, [mine.encode()] * len(places))[0].decode()
    if count:
        store.add(MADE, 1)
    return first


class Heed:
    """Raises if another member has died or could not make its communicators; what it said itself tells more.

    What a signal handler raises comes here too. The store is asked seldom, and ever more so, or not at all where
    somebody calls `hear`.

    Args:
        name: The group's name.
        store: The group's store; None if it need not be asked.

    Attributes:
        look: Raises if a member has died.
    """

    def __init__(self, name: str, store: Store | None) -> None:
        self._name, self._store, self._verdict = name, store, ""
        self.look: Callable[[], None] = see_nothing
        self._ask_at, self._pause_s = monotonic() + _PAUSE_S, _LONGER * _PAUSE_S

    def hear(self, verdict: bytes) -> None:
        """Learn what it says how the group came out; the next call raises that, from any thread."""
        self._verdict = verdict.decode()

    def __call__(self) -> None:
        interrupts.heed()
        if self._store is not None and monotonic() >= self._ask_at:
            self.hear(self._store.peek(VERDICT) or b"")
            self._ask_at = monotonic() + self._pause_s
            self._pause_s = min(_LONGER * self._pause_s, _LONGEST_PAUSE_S)
        if _is_somebodys_own(self._verdict):
            raise told_by(self._verdict) or DistBackendError(f"group {self._name!r} cannot be made: {self._verdict}")
        self.look()

    def end(self) -> None:
        """Look no more, as the group is made; its context keeps this object, but not what it looked for."""
        self._store, self.look = None, see_nothing


def see_nothing() -> None:
    """Return: nobody is known to have died."""


def prefer(name: str, first: str, error: BaseException) -> None:
    """Raise what another member said first, where this one's error only tells that the other is gone."""
    if isinstance(error, _CONSEQUENCES) and _is_somebodys_own(first):
        raise told_by(first) or DistBackendError(f"group {name!r} cannot be made: {first}") from error


def _is_somebodys_own(verdict: str) -> bool:
    """Tell whether a verdict is the error of a rank that could not go on, and not that another one was gone."""
    if isinstance(told_by(verdict), GroupAbortedError):
        return True
    match = re.match(r"rank \d+: (\w+): ", verdict)
    kind = match and (getattr(errors, match[1], None) or getattr(builtins, match[1], Exception))
    return isinstance(kind, type) and not issubclass(kind, _CONSEQUENCES)
