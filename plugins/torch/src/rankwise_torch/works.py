"""What torch gets for an operation: `DONE` where it is over, a `Pending` where it goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch._C._distributed_c10d import _create_work_from_future
from torch.distributed import Work

from rankwise_torch.errors import as_torch_raises, of_both
from rankwise_torch.opaque import left_alone
from rankwise_torch.tensors import Ending, put_back

#: How torch's C++ says that a wait has no time-out.
_NO_TIMEOUT = timedelta(0)


class _Telling(threading.local):
    """Whether this thread is telling a future, and so runs callbacks of the program."""

    now = False


_telling = _Telling()


def _tell(ended: torch.futures.Future[None]) -> None:
    before, _telling.now = _telling.now, True
    try:
        ended.set_result(None)
    finally:
        _telling.now = before


class Inner(Protocol):
    """The work of rankwise that a work of torch stands for, as far as that asks it."""

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the operation has ended."""

    def is_completed(self) -> bool:
        """Tell whether it has."""

    def exception(self) -> BaseException | None:
        """Return why it has failed, or None."""

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call back once it has ended."""

    def source_rank(self) -> int:
        """Return who sent a received message, as rankwise calls the ranks."""


class Done(Work):  # type: ignore[misc] # torch's bindings have no types
    """An operation that has ended well before it was returned; `result` holds the tensors it has filled."""

    def __init__(self, result: Sequence[torch.Tensor] = ()) -> None:
        super().__init__()
        self._result = list(result)

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Return immediately."""
        return True

    def is_completed(self) -> bool:
        """Say yes."""
        return True

    def is_success(self) -> bool:
        """Say yes."""
        return True

    def exception(self) -> BaseException | None:
        """Return None."""
        return None

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that the operation has filled."""
        return self._result

    def synchronize(self) -> None:
        """Return immediately."""

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a future that is done."""
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        future.set_result(self._result)
        return future


#: What synchronous calls return.
DONE = Done()


class Received(Done):
    """A message that has been received before this was returned, from `source`, a rank in the group."""

    def __init__(self, tensor: torch.Tensor, source: int) -> None:
        super().__init__([tensor])
        self._source = source

    def source_rank(self) -> int:
        """Return who sent it."""
        return self._source

    _source_rank = source_rank


class Pending(Work):  # type: ignore[misc] # as above
    """An operation that goes on.

    Args:
        inner: The work of rankwise.
        result: What the future holds: the tensors that the operation fills.
        rank_of: For a message, the rank in the group of each rank by which rankwise calls senders.
    """

    def __init__(
        self,
        inner: Inner,
        result: Sequence[torch.Tensor],
        rank_of: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__()
        self.filled = list(result)
        self._inner, self._rank_of = inner, rank_of
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Block until the operation has ended, and return true.

        Without a time-out it is as long as the operation itself may take.
        """
        with as_torch_raises():
            self._inner.wait(timeout.total_seconds() if timeout else None)
        return True

    def is_completed(self) -> bool:
        """Tell whether the operation has ended, well or badly."""
        return self._inner.is_completed()

    def is_success(self) -> bool:
        """Tell whether the operation has ended well."""
        return self.is_completed() and self._inner.exception() is None

    def exception(self) -> BaseException | None:
        """Return the error of an operation that has failed, or None."""
        error = self._inner.exception()
        return None if error is None else of_both(error)

    def result(self) -> list[torch.Tensor]:
        """Wait, and return the tensors that the operation has filled."""
        self.wait()
        return self.filled

    def synchronize(self) -> None:
        """Wait, as on every CPU backend."""
        self.wait()

    def source_rank(self) -> int:
        """Return who sent a received message, as a rank in the group."""
        if self._rank_of is None:
            raise RuntimeError("source_rank() is for a receive")
        return self._rank_of[self._inner.source_rank()]

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a future of the tensors; it fails as the operation does, also for threads that wait in C++."""
        if self._future is None:
            # An error that `set_exception` leaves is seen in Python alone; one that a callback raises, by C++ too.
            ended: torch.futures.Future[None] = torch.futures.Future()
            self._future = ended.then(self._outcome)
            if _telling.now:
                # A callback may wait for this future in C++, on the thread that would have to end it: end it first.
                with suppress(Exception):  # which the future tells
                    self._inner.wait()
            self._inner.add_done_callback(lambda _: _tell(ended))
        return self._future

    def _outcome(self, _: object) -> list[torch.Tensor]:
        error = self.exception()
        if error is not None:
            raise error
        return self.filled


class Copying:
    """A work that has ended when its results lie where they belong, whether or not anybody waits for it.

    Args:
        inner: The operation.
        copies: What it fills in place of tensors.
    """

    def __init__(self, inner: Inner, copies: Sequence[Ending]) -> None:
        self._inner, self._copies = inner, copies
        self._lock = threading.Lock()
        self._is_over = False
        inner.add_done_callback(self._finish)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the operation, and copy if nobody has."""
        try:
            return self._inner.wait(timeout)
        finally:
            if self._inner.is_completed():
                self._finish()

    def is_completed(self) -> bool:
        """Tell whether the results are there, or never will be."""
        return self._is_over or (self._inner.is_completed() and self._is_over)

    def exception(self) -> BaseException | None:
        """Return why the operation has failed."""
        return self._inner.exception()

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call back once the results are there."""

        def then(_: object) -> None:
            self._finish()
            callback(self)

        self._inner.add_done_callback(then)

    def source_rank(self) -> int:
        """Return who sent a received message."""
        return self._inner.source_rank()

    def _finish(self, _: object = None) -> None:
        """Copy, once; a thread that comes meanwhile waits for that."""
        with self._lock:
            copies, self._copies = self._copies, ()
            if copies and self._inner.exception() is None:
                put_back(copies)
            self._is_over = True


class Together:
    """Several works as one, which ends when all have; the first error counts."""

    def __init__(self, parts: Sequence[Inner]) -> None:
        self._parts = parts

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for all of them, each within the time-out."""
        errors = []
        for part in self._parts:
            try:
                part.wait(timeout)
            except Exception as error:  # whatever it is, the others still have to end
                errors.append(error)
        if errors:
            raise errors[0]
        return True

    def is_completed(self) -> bool:
        """Tell whether all have ended."""
        return all(part.is_completed() for part in self._parts)

    def exception(self) -> BaseException | None:
        """Return the first error, if any part has failed."""
        return next((error for part in self._parts if (error := part.exception()) is not None), None)

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call back once all have ended, on the thread of the last."""
        left = _Countdown(len(self._parts), lambda: callback(self))
        for part in self._parts:
            part.add_done_callback(lambda _: left.down())

    def source_rank(self) -> int:
        """Say that several messages have no one sender."""
        raise RuntimeError("source_rank() is for a single receive")


class _Countdown:
    """Calls back when it was told as often as it was made for."""

    def __init__(self, count: int, callback: Callable[[], object]) -> None:
        self._left, self._callback = count, callback
        self._lock = threading.Lock()
        if not count:
            callback()

    def down(self) -> None:
        """Count one."""
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            self._callback()


def of_its_own(work: Done | Pending) -> Work:
    """Return a work of C++ that ends as this one does, and needs nothing of what Python knows of this one."""
    return _create_work_from_future(work.get_future())


left_alone(Done, Received, Pending)
