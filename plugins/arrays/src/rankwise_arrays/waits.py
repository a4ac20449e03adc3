"""Waiting for several works: for all, for any, for some, and for each as it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Any

from rankwise import Work
from rankwise.errors import DistTimeoutError

Timeout = float | timedelta | None


def wait_all(works: Iterable[Work | None], timeout: Timeout = None) -> None:
    """Wait until all works have ended; None, which ranks outside of a group get for a work, has ended.

    Args:
        works: The works.
        timeout: How long all of them may take together, in seconds or as a `timedelta`; None is what the group of each
            allows.

    Raises:
        DistTimeoutError: They have taken too long.
        DistError: The first in the list that has failed; the others were waited for.

    Examples:
        >>> arrays = [np.ones(2), np.ones(3)]
        >>> dist.wait_all([dist.all_reduce(array, async_op=True) for array in arrays])
        >>> arrays[1]
        array([2., 2., 2.])
    """
    until = _until(timeout)
    first: BaseException | None = None
    for work in works:
        try:
            if work is not None:
                work.wait(None if until is None else max(0.0, until - time.monotonic()))
        except Exception as error:
            if isinstance(error, DistTimeoutError) and until is not None and not work_has_ended(work):
                raise
            first = first or error
    if first is not None:
        raise first


def wait_any(works: Sequence[Work | None], timeout: Timeout = None) -> int:
    """Wait until one of several works has ended, and return its index.

    Args:
        works: The works; None, which ranks outside of a group get for a work, has ended.
        timeout: How long that may take; None waits for as long as it takes.

    Returns:
        The place of the first that is found to have ended.

    Raises:
        ValueError: There are none.
        DistTimeoutError: None has ended in time.
        DistError: The one that has ended has failed.

    Examples:
        >>> boxes = [np.empty(1, int), np.empty(1, int)]
        >>> works = [dist.irecv(box, 1 - rank, tag=tag) for tag, box in enumerate(boxes)]
        >>> dist.send(np.array([5]), 1 - rank, tag=1)
        >>> dist.wait_any(works), boxes[1]
        (1, array([5]))
        >>> dist.send(np.array([6]), 1 - rank, tag=0)
        >>> dist.wait_all(works)
    """
    return wait_some(works, timeout)[0]


def wait_some(works: Sequence[Work | None], timeout: Timeout = None) -> list[int]:
    """Wait until at least one of several works has ended, and return the places of all that have.

    Args:
        works: The works; None, which ranks outside of a group get for a work, has ended.
        timeout: How long that may take; None waits for as long as it takes.

    Returns:
        The places in the list, in order.

    Raises:
        ValueError: There are none.
        DistTimeoutError: None has ended in time.
        DistError: One that has ended has failed.

    Examples:
        >>> array = np.ones(1)
        >>> dist.wait_some([dist.all_reduce(array, async_op=True), None])[-1]
        1
        >>> dist.barrier()
    """
    if not works:
        raise ValueError("wait_some: there is nothing to wait for")
    ended = [place for place, work in enumerate(works) if work_has_ended(work)]
    if not ended:
        next(iter(as_completed(works, timeout)))
        ended = [place for place, work in enumerate(works) if work_has_ended(work)]
    wait_all(works[place] for place in ended)
    return ended


def as_completed(works: Iterable[Work | None], timeout: Timeout = None) -> Completed:
    """Return an iterator over works in the order in which they end, for `for` and for `async for`.

    Args:
        works: The works; None, which ranks outside of a group get for a work, is left out.
        timeout: How long all of them may take together; None waits for as long as it takes.

    Returns:
        The iterator. A work that has failed is given too, and raises where it is waited for.

    Raises:
        DistTimeoutError: Not all have ended in time.

    Examples:
        >>> arrays = [np.ones(2), np.ones(3)]
        >>> works = [dist.all_reduce(array, async_op=True) for array in arrays]
        >>> sorted(work.result().size for work in dist.as_completed(works))
        [2, 3]
    """
    return Completed([work for work in works if work is not None], timeout)


class Completed:
    """Works in the order in which they end; see `as_completed`."""

    def __init__(self, works: Sequence[Work], timeout: Timeout) -> None:
        self._works, self._until = works, _until(timeout)

    def __iter__(self) -> Iterator[Work]:
        ended: SimpleQueue[Work] = SimpleQueue()
        self._watch(ended.put)
        for count in range(len(self._works)):
            try:
                yield ended.get(timeout=self._left())
            except Empty:
                raise self._late(count) from None

    async def __aiter__(self) -> AsyncIterator[Work]:
        ended: asyncio.Queue[Work] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def tell(work: Work) -> None:
            with suppress(RuntimeError):  # the loop has been closed: nobody waits here any more
                loop.call_soon_threadsafe(ended.put_nowait, work)

        self._watch(tell)
        for count in range(len(self._works)):
            try:
                yield await asyncio.wait_for(ended.get(), self._left())
            except asyncio.TimeoutError:
                raise self._late(count) from None

    def _watch(self, tell: Callable[[Work], object]) -> None:
        for work in self._works:
            work.add_done_callback(lambda _, work=work: tell(work))  # type: ignore[misc]

    def _left(self) -> float | None:
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def _late(self, count: int) -> DistTimeoutError:
        return DistTimeoutError(f"as_completed: {len(self._works) - count} of {len(self._works)} works have not ended")


def work_has_ended(work: Any) -> bool:
    """Tell whether there is nothing to wait for."""
    return work is None or work.is_completed()


def _until(timeout: Timeout) -> float | None:
    if timeout is None:
        return None
    return time.monotonic() + (timeout.total_seconds() if isinstance(timeout, timedelta) else timeout)
