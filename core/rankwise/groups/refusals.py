"""What members of a group tell each other when one of them could not make its communicators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from rankwise.backends.contract import see_nothing
from rankwise.basics import interrupts as interrupts
from rankwise.errors import DistBackendError, DistError, DistNetworkError, DistTimeoutError, PeerDiedError
from rankwise.groups.handshake import interrupted, told_by, verdict_of
from rankwise.store import Store
from rankwise.store.patience import EXCHANGE

#: Where in a group's store they are counted who have made their communicators or could not, and where it says how it
#: came out.
MADE, VERDICT = "made/count", "made/verdict"
#: How long after a look into the store another is worth while, at first and at the most; each time four times as long,
#: so that many ranks that begin for long ask little. Where cards are exchanged a rank is told without asking, and where
#: there is a watcher its heartbeats bring the verdict along.
_PAUSE_S, _LONGER, _LONGEST_PAUSE_S = 0.25, 4, 16.0
#: Errors that tell of another rank's end, whatever that came from.
CONSEQUENCES = (DistNetworkError, DistTimeoutError, PeerDiedError, ConnectionError, TimeoutError)


def refuse(store: Store, name: str, rank: int, backends: Sequence[str], error: BaseException, count: bool) -> str:
    """Write why this rank could not make a group, unless another one has before, and return what stands there.

    Those that wait in an exchange of one of the backends are told there, too. With `count` this rank is counted, as
    those are that have made their communicators.
    """
    text = f"rank {rank}: {type(error).__name__}: {error}"
    told: DistError
    if interrupts.is_a_handlers(error):
        told = interrupted("making it", rank, error)
    elif isinstance(error, PeerDiedError):
        told = error
    else:
        kind = DistNetworkError if isinstance(error, CONSEQUENCES) else DistBackendError
        told = kind(f"group {name!r} cannot be made: {text}")
    places = [f"{backend}/{EXCHANGE}" for backend in backends]
    first = store._claim([VERDICT, *places], [verdict_of(told).encode(), *[text.encode()] * len(places)])[0].decode()
    if count:
        store.add(MADE, 1)
    return first


class Heed:
    """Raises if another member has died or could not make its communicators; what it said itself tells more.

    What a signal handler raises comes here too. The store is asked seldom, and ever more so, or not at all where
    somebody calls `hear`.

    Args:
        store: The group's store; None if it need not be asked.

    Attributes:
        look: Raises if a member has died.
    """

    def __init__(self, store: Store | None) -> None:
        self._store, self._verdict = store, ""
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
        if (own := somebodys_own(self._verdict)) is not None:
            raise own
        self.look()

    def end(self) -> None:
        """Look no more, as the group is made; its context keeps this object, but not what it looked for."""
        self._store, self.look = None, see_nothing


def somebodys_own(verdict: str) -> DistError | None:
    """Return the error of a rank that could not go on itself; None if a verdict tells of another's end, or of none."""
    error = told_by(verdict)
    return None if isinstance(error, CONSEQUENCES) else error
