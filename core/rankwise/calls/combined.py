"""`CombinedWork`: several operations as one work, or one with something to do at its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.interrupts import is_interrupt
from rankwise.basics.tracebacks import shortened
from rankwise.basics.work import FutureWork, Work

__all__ = ["CombinedWork"]


class CombinedWork(FutureWork):
    """A work that ends when all of its parts have, or one has failed. Waiting for it waits for them.

    Args:
        parts: The works.
        result: What `result()` returns.
        after: What is to be done once all have ended well; called once.
    """

    def __init__(self, parts: Sequence[Work], result: Any = None, after: Callable[[], object] | None = None) -> None:
        super().__init__()
        self._parts, self._value, self._after = parts, result, after
        self._lock = threading.RLock()  # some backends call back when they are asked for an end
        self._is_over = False
        for part in parts:
            part.add_done_callback(self._look)
        if not parts:
            self._look()

    def wait(self, timeout: Timeout | None = None) -> bool:
        """Wait for the parts, each in its own way; see `Work.wait`."""
        with shortened:
            deadline = None if timeout is None else Deadline(seconds(timeout))
            for part in self._parts:
                try:
                    part.wait(None if deadline is None else deadline.remaining())
                except Exception as error:  # this work tells it in its own way
                    if is_interrupt(error) or not (part.is_completed() or deadline):
                        raise
                    if not part.is_completed():
                        break
            self._look()
            return super().wait(None if deadline is None else deadline.remaining())

    def is_completed(self) -> bool:
        """Tell whether the parts have ended; some know that only when they are asked."""
        if not self._is_over and all(part.is_completed() for part in self._parts):
            self._look()
        return super().is_completed()

    def source_rank(self) -> int:
        """Return the group rank that sent the message, if this is one."""
        (part,) = self._parts
        return part.source_rank()

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """How many bytes of its message it has got, if this is one that is received."""
        return self._parts[0].nbytes if len(self._parts) == 1 else 0

    def cancel(self) -> bool:
        """Withdraw the message, if this is one that is to be received."""
        (part,) = self._parts
        return part.cancel()

    def _look(self, _: Work | None = None) -> None:
        """End if the parts have, on the thread that sees it first."""
        with self._lock:
            errors = [error for part in self._parts if (error := part.exception()) is not None]
            if self._is_over or not (errors or all(part.is_completed() for part in self._parts)):
                return
            self._is_over = True
        if errors:
            self.fail(errors[0])
        else:
            self._finish()

    def _finish(self) -> None:
        after, self._after = self._after, None
        try:
            if after is not None:
                after()
        except Exception as error:  # raised where it is waited for
            self.fail(error)
        else:
            self.succeed(self._value)
