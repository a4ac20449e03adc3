"""Where backends are found, and how what a plugin brings is run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from rankwise.basics import entry_points
from rankwise.basics.deadline import Deadline
from rankwise.basics.entry_points import Point, one_line
from rankwise.basics.interrupts import is_surely_a_handlers

ENTRY_POINT_GROUP = "rankwise.backends"

#: The names that were come across in this process, for messages that are not worth another look.
names_seen: set[str] = set()


def points_of(name: str = "") -> list[Point]:
    """Return the installed entry points of a name, or of all backends."""
    points = [point for point in entry_points.installed(ENTRY_POINT_GROUP, name) if name in ("", point.name)]
    names_seen.update(point.name for point in points)
    return points


def owners() -> dict[str, list[str]]:
    """Return the distributions and versions that bring each installed backend, by a quick look if that shows all."""
    found: dict[str, list[str]] = {}
    shows_all = not any(os.path.isfile(folder) for folder in sys.path)  # there is nothing in zip files
    pairs = (
        ((name, owner) for name, _, owner in entry_points.declared_by(ENTRY_POINT_GROUP))
        if shows_all
        else ((point.name, point.owner) for point in points_of())
    )
    for name, owner in pairs:
        found.setdefault(name, []).append(owner)
    names_seen.update(found)
    return found


def quickly(name: str) -> str | None:
    """Return what the only entry point of a name stands for, or None if it takes more than a quick look to tell."""
    points = list(entry_points.declared(ENTRY_POINT_GROUP))
    names_seen.update(found for found, _ in points)
    values = [value for found, value in points if found == name]
    return values[0] if len(values) == 1 else None


# What plugins bring is run here: it may do whatever it likes, and what it does is told as that plugin's
#
# A plugin's module, its hook, its table and its probes are code of strangers, and run in programs which use another
# backend. So whatever they raise ends here, `SystemExit` included; Ctrl-C alone passes. What they say is told in one
# line, without anything that a terminal would obey.

_T = TypeVar("_T")


class PluginFault(Exception):
    """What a plugin brings cannot be used; the message says why, and not yet which plugin it is."""


def run_plugin(what: str, function: Callable[[], _T]) -> _T:
    """Call what a plugin brings; `what` begins the sentence that tells of a failure.

    Raises:
        PluginFault: It has raised anything but `KeyboardInterrupt`.
    """
    try:
        return function()
    except (KeyboardInterrupt, PluginFault):
        raise
    except BaseException as error:
        if is_surely_a_handlers(error):
            raise
        raise PluginFault(f"{what}: {described(error)}") from error


def described(error: BaseException) -> str:
    """Return an error's type and message in one line, even if the message itself cannot be had."""
    try:
        text = str.__str__(str(error))  # exactly a str, whatever it says it is
    except KeyboardInterrupt:
        raise
    except BaseException as another:
        text = f"its message cannot be had, because of {type(another).__name__}"
    if isinstance(error, SystemExit):
        return f"it would end the process (SystemExit: {one_line(text)})"
    return one_line(f"{type(error).__name__}: {text}" if text else type(error).__name__)


# Without waiting longer than the program allows
#
# A backend that attends to its deadlines itself is called by the thread that needs it. What any other brings is called
# by another thread, which is left behind if it does not return in time.


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
        """Return what a function returns, which messages call `function`, and whose call belongs to `what`.

        `look` raises if it is of no use to wait any more, and `undo` gives back what comes when nobody waits for it.

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
