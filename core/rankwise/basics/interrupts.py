"""Interrupts: what comes into a call from outside, as Control-C does, and what becomes of its group.

A signal handler may raise wherever the main thread is: half-way through a change, or when all is done and the call is
about to return. So the rule is held at the outermost frame of each public call, and not wherever an interrupt may come:

- where the call has begun, the group is given up, and all ranks hear who was interrupted, and in what;
- but where an interrupt has come while the thread only waited, and nothing was being changed, the waiting code says so
  by `only_waited`. Then only the wait has ended: what was waited for goes on, or was withdrawn.

Whatever an interrupt has left half-changed is never looked at again but by what gives the group up and closes it.
"""

from __future__ import annotations

from rankwise.basics.tracebacks import has_foreign, modules
from rankwise.errors import DistError, GroupAbortedError

__all__ = ["aborted_by", "forget_waited", "has_only_waited", "is_interrupt", "only_waited"]

#: Arguments are checked here alone, before anything has begun; what raises within is, or was called for, an argument.
_CHECKS = "rankwise.calls.check"
_MARK = "_rankwise_only_waited"


def is_interrupt(error: BaseException) -> bool:
    """Tell whether an error is none of rankwise's own, so that the call that it has ended may stand half-way.

    That is what a signal handler has raised, or another thread; but not what comes of an argument.
    """
    if isinstance(error, DistError):
        return False
    trace = error.__traceback__
    if trace is not None and _CHECKS in modules(trace):
        return False
    if not isinstance(error, Exception) or type(error).__module__ != "builtins":
        return True
    return trace is not None and trace.tb_next is not None and has_foreign(trace.tb_next)


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
