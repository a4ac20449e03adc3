"""What members of a group tell each other when one of them could not make its communicators."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable

from rankwise import errors
from rankwise.basics import held as interrupts
from rankwise.errors import DistBackendError, DistNetworkError, DistTimeoutError, GroupAbortedError, PeerDiedError
from rankwise.groups.handshake import death_verdict, interrupted, told_by
from rankwise.store import PrefixStore, Store

__all__ = ["heed", "prefer", "refuse"]

#: Errors that tell of another rank's end, whatever that came from.
_CONSEQUENCES = (DistNetworkError, DistTimeoutError, PeerDiedError, ConnectionError, TimeoutError)


def refuse(store: Store, rank: int, error: BaseException) -> str:
    """Write why this rank could not, unless another one has before, and return what stands there."""
    text = f"rank {rank}: {type(error).__name__}: {error}"
    if interrupts.is_a_handlers(error):
        text = interrupted("making it", rank, error)
    mine = death_verdict(error, "") if isinstance(error, PeerDiedError) else text
    place = PrefixStore("made", store)
    first = place.compare_set("verdict", "", mine).decode()
    place.add("told", 1)
    return first


def heed(name: str, store: Store | None, look: Callable[[], None]) -> None:
    """Raise if another member has died or could not make its communicators; what it said itself tells more.

    What a signal handler raises comes here too.
    """
    interrupts.heed()
    verdict = None if store is None else PrefixStore("made", store).peek("verdict")
    if verdict is not None and _is_somebodys_own(verdict.decode()):
        raise told_by(verdict.decode()) or DistBackendError(f"group {name!r} cannot be made: {verdict.decode()}")
    look()


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
