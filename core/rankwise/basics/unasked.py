"""Works that were handed out, and that the program may never ask: readers of figures look whether they have ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet, ref

#: Tells the flight recorder that an operation has ended, and with which error.
Noted = Callable[[BaseException | None], object]

#: How many are looked after whenever another one comes.
_A_FEW = 2
#: As many as a flight recorder notes, and more.
_works: deque[tuple[ref[Any], Noted]] = deque(maxlen=4096)


class Source(Protocol):
    """What hands works out, and looks after them by itself."""

    def look(self) -> None:
        """Note the ends of all that have ended."""

    def lose(self, error: BaseException, /) -> None:
        """End all that have not, in the child of a fork."""


_sources: WeakSet[Source] = WeakSet()


def also(source: Source) -> None:
    """Look at a source too from now on; it is not kept alive."""
    _sources.add(source)


def watch(work: Any, noted: Noted) -> None:
    """Look after a work until it is known to have `ended`; it is not kept alive."""
    _tend(_A_FEW)  # else those that have ended would keep their groups' records for as long as nobody reads
    _works.append((ref(work), noted))


def look() -> None:
    """Note the ends of all works that have ended, and of those that nobody has any more, not even their backends."""
    _tend(len(_works))
    for source in list(_sources):
        source.look()


def lose(error: BaseException) -> None:
    """End the copies of all works in the child of a fork: they are the parent's."""
    works = [reference() for reference, _ in _works]
    _works.clear()
    for work in works:
        if work is not None and not work.ended and hasattr(work, "lose"):
            work.lose(error)
    for source in list(_sources):
        source.lose(error)


def _tend(count: int) -> None:
    for _ in range(min(count, len(_works))):
        try:
            reference, noted = _works.popleft()
        except IndexError:  # another thread looks too
            return
        work = reference()
        if work is None:
            noted(None)
        elif work.ended:
            noted(work.exception())
        else:
            _works.append((reference, noted))
