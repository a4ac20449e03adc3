"""Interrupts: what comes into a call from outside, as Control-C does, and what becomes of its group.

A signal handler may raise wherever the main thread is: half-way through a change, or when all is done and the call is
about to return. So the rule is held at the outermost frame of each public call, and not wherever an interrupt may come:

- where the call has begun, the group is given up, and all ranks hear who was interrupted, and in what;
- but where an interrupt has come while the thread only waited, and nothing was being changed, the waiting code says so
  by `only_waited`. Then only the wait has ended: what was waited for goes on, or was withdrawn.

Whatever an interrupt has left half-changed is never looked at again but by what gives the group up and closes it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from rankwise.basics.systems import cause
from rankwise.basics.tracebacks import has_foreign, modules
from rankwise.errors import DistBackendError, DistError, GroupAbortedError

#: Arguments are checked here alone, before their call has begun; what raises within is, or was called for, an argument.
_CHECKS = "rankwise.calls.check"
_MARK = "_rankwise_only_waited"


def is_interrupt(error: BaseException) -> bool:
    """Tell whether an error is none of rankwise's own, so that the call that it has ended may stand half-way.

    That is what a signal handler has raised, or another thread; but not what comes of an argument.
    """
    if isinstance(error, DistError):
        return False
    trace = error.__traceback__
    if _is_of_an_argument(trace):
        return False
    if not isinstance(error, Exception) or type(error).__module__ != "builtins":
        return True
    return trace is not None and trace.tb_next is not None and has_foreign(trace.tb_next)


def _is_of_an_argument(trace: TracebackType | None) -> bool:
    """Tell whether an error comes of arguments that the program has given, so that its call has not begun.

    The function that the program has called checks these itself. What another checks that this one calls in turn, such
    as the second of two collectives of which it is made, is checked half-way.
    """
    found = list(dict.fromkeys(modules(trace)))
    return _CHECKS in found[:2]


def aborted_by(error: BaseException, what: str) -> GroupAbortedError:
    """Return the error of a group that is given up for an interrupt; `what` says in which call, and on which rank."""
    return GroupAbortedError(f"{what} was interrupted by {type(error).__name__}")


def only_waited(error: BaseException) -> None:
    """Say of an interrupt that nothing was being changed when it came, so that only the wait has ended."""
    setattr(error, _MARK, True)


def forget_waited(error: BaseException) -> None:
    """Say of an interrupt that more than a wait has ended after all."""
    setattr(error, _MARK, False)


def has_only_waited(error: BaseException) -> bool:
    """Tell whether nothing but a wait was ended by an interrupt."""
    return getattr(error, _MARK, False) is True


# Signal handlers held back: where groups begin and end, interrupts come only at places that are ready for them
#
# Such a call changes much, here and at the other ranks, and cannot be given up as a whole in the middle. So while
# `held` is entered a signal's handler, whatever it is, is called by `heed` only, which all that waits calls again and
# again; or when the call is over. A user who insists gets through: a second signal of the same number finds its own
# handler.

_HANDLERS_MARK = "_rankwise_a_handlers"
#: Those of C, which give no enumerations: what `held` does takes a quarter of the time by them.
_handler_of = _signal.getsignal
_NUMBERS = [int(number) for number in signal.valid_signals()]


class _Held:
    """Holds the handlers of this process's signals back; only its main thread, which calls them, has to."""

    def __init__(self) -> None:
        self._depth = 0
        self._own: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._came: dict[int, None] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._depth += 1
        if self._depth > 1:
            return
        try:
            for number in _NUMBERS:
                handler = _handler_of(number)
                if callable(handler) and not getattr(handler, "raises_nothing", False):  # as those that only watch
                    self._own[number] = handler
                    signal.signal(number, self._note)
        except BaseException:
            self._depth = 0
            self._restore()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if threading.current_thread() is threading.main_thread():
            self._depth -= 1
            if self._depth == 0:
                self._restore()

    @property
    def patience_s(self) -> float:
        """For how long a wait of this thread may go on without `heed`, which does much on the main thread alone."""
        return 0.05 if self._depth and threading.current_thread() is threading.main_thread() else 3600.0

    def heed(self) -> None:
        """Call the handlers of the signals that have come meanwhile, on the main thread."""
        if self._came and threading.current_thread() is threading.main_thread():
            number = next(iter(self._came))
            del self._came[number]
            self._handle(number, sys._getframe(1))

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number in self._came:
            self._handle(number, frame)
        else:
            self._came[number] = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        try:
            self._own[number](number, frame)
        except BaseException as error:
            setattr(error, _HANDLERS_MARK, True)
            raise

    def _restore(self) -> None:
        """Give all signals their handlers back, and have these called for what has come."""
        try:
            for number, handler in list(self._own.items()):
                if _handler_of(number) == self._note:
                    signal.signal(number, handler)
                del self._own[number]
            while self._came:
                signal.raise_signal(self._came.popitem()[0])
        except BaseException:  # a handler's
            self._restore()
            raise


#: The one that all use: `with held: ...`.
held = _Held()
heed = held.heed


def is_a_handlers(error: BaseException) -> bool:
    """Tell whether a signal's handler has raised an error, here where handlers are held back."""
    return is_surely_a_handlers(error) or not isinstance(error, Exception)


def is_surely_a_handlers(error: BaseException) -> bool:
    """Tell the same where code runs that may itself raise what is no `Exception`, as a plugin's does that exits."""
    return getattr(error, _HANDLERS_MARK, False) is True


# ------------------------------------------------------------------ threads of the library's own, which may be refused


def start_thread(thread: threading.Thread) -> None:
    """Start a thread, whole or not at all: an interrupt waits until it runs.

    Raises:
        DistBackendError: The system starts no more threads; it says which limit that is.
    """
    try:
        with held:
            thread.start()
    except RuntimeError as error:
        if cause(error) == str(error):
            raise
        raise DistBackendError(f"{thread.name}: {cause(error)}") from error
