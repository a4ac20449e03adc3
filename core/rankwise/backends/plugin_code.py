"""What plugins bring is run here: it may do whatever it likes, and what it does is told as that plugin's.

A plugin's module, its hook, its table and its probes are code of strangers, and run in programs which use another
backend. So whatever they raise ends here, `SystemExit` included; Ctrl-C alone passes. What they say is told in one
line, without anything that a terminal would obey.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["PluginFault", "described", "one_line", "run_plugin"]

_T = TypeVar("_T")
_LONGEST = 1000


class PluginFault(Exception):
    """What a plugin brings cannot be used; the message says why, and not yet which plugin it is."""


def run_plugin(what: str, function: Callable[[], _T]) -> _T:
    """Call what a plugin brings.

    Args:
        what: What is called, as the beginning of the sentence that tells of a failure.
        function: The call.

    Raises:
        PluginFault: It has raised anything but `KeyboardInterrupt`.
    """
    try:
        return function()
    except (KeyboardInterrupt, PluginFault):
        raise
    except BaseException as error:
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


def one_line(text: str) -> str:
    """Return a text of a plugin's in one line of bounded length, with what a terminal would obey made visible."""
    joined = " ".join(text[: 4 * _LONGEST].split())
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in joined)
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}..."
