"""How the core calls what a plugin brings, without waiting longer than the program allows.

A backend that attends to its deadlines itself is called by the thread that needs it. What any other brings is called by
another thread, which is left behind if it does not return in time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from rankwise.basics.deadline import Deadline

__all__ = ["TRUSTED", "Supervision"]

_T = TypeVar("_T")


def _forget(made: object) -> None:
    """Do nothing with what has come too late."""


class Supervision(NamedTuple):
    """Calls the functions of one backend.

    Attributes:
        attends: Whether it ends all of them in time by itself.
        whose: Names the backend and what brings it, for messages.
    """

    attends: bool
    whose: Callable[[], str]

    def call(
        self,
        function: str,
        call: Callable[[], _T],
        deadline: Deadline,
        what: str = "",
        look: Callable[[], object] | None = None,
        undo: Callable[[_T], object] = _forget,
    ) -> _T:
        """Return what a function returns.

        Args:
            function: What it is called.
            call: Calls it.
            deadline: When it must have returned.
            what: What it belongs to, for messages.
            look: Raises if it is of no use to wait any more.
            undo: Gives back what comes when nobody waits for it any more.

        Raises:
            DistTimeoutError: It has not returned in time.
        """
        if self.attends:
            return call()
        from rankwise.basics.attending import attended  # which our own backends do without

        made: list[_T] = []
        left: list[bool] = []

        def give_back() -> None:
            with contextlib.suppress(Exception):  # nobody would hear of it, or the other thread has been faster
                undo(made.pop())

        def step() -> _T:
            result = call()
            made.append(result)
            if left:
                give_back()
            return result

        try:
            return attended(step, look, deadline, what or f"`{function}`", lambda: f"`{function}` of {self.whose()},")
        except BaseException:
            left.append(True)
            give_back()
            raise


#: Of what is no plugin's.
TRUSTED = Supervision(True, str)
