"""Plain calls that do not run Python: compiled code stands in front of a public function and makes them.

It asks the group's shortcut, as the function does. Whatever that does not take, and every call where it is not
compiled, goes to the function with the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from types import FunctionType
from typing import Any, TypeVar, cast

from rankwise.backends.fast_calls import Shortcuts
from rankwise.basics import native
from rankwise.calls.calling import failed
from rankwise.groups.process_group import ProcessGroup
from rankwise.groups.world import CONTEXTS_WORLD, World

_Function = TypeVar("_Function", bound="Callable[..., Any]")


class Root(str):
    """The name of a parameter for a root, which a shortcut is handed as a rank in the group."""


#: What the shortcut of each public function is handed: what is given for parameters, by their names; the group, where
#: its class stands; and anything else as it is.
TAKEN: dict[str, tuple[Any, ...]] = {}


def fronted(
    *taken: Any, ends: Callable[..., object] = failed, made: Callable[..., Any] | None = None
) -> Callable[[_Function], _Function]:
    """Have compiled code, if there is any, stand in front of a public function.

    Args:
        *taken: What the shortcut is handed, as in `TAKEN`. A call that says more than that is left to the function.
        ends: Ends a call that raises: it takes the group, the error and the function's name.
        made: If the shortcut may return a tuple: makes of all that was handed over, and that, what the call returns.
    """

    def put(function: _Function) -> _Function:
        TAKEN[function.__name__] = taken
        compiled = native.module()
        if compiled is None:
            return function
        types = World, ProcessGroup, Shortcuts
        front = compiled.Front(
            function, *_parameters_of(function), taken, CONTEXTS_WORLD, types, _as_in(function, ends), made
        )
        for name in ("__code__", "__defaults__", "__kwdefaults__"):  # for whoever reads a function without calling it
            setattr(front, name, getattr(function, name))
        return cast("_Function", update_wrapper(front, function))

    return put


def _as_in(function: Any, ends: Callable[..., object]) -> Callable[..., object]:
    """Return what ends a call in a frame of the function's name: errors are read from the public call on."""

    def call(pg: ProcessGroup, error: BaseException, name: str) -> None:
        context = error.__context__
        try:
            raise error
        except BaseException as raised:
            raised.__context__ = context
            ends(pg, raised, name)
        finally:
            del error, context  # whose traceback holds this frame

    call.__code__ = call.__code__.replace(co_name=function.__name__)
    return call


def _parameters_of(function: Any) -> tuple[tuple[str, ...], int, dict[str, Any]]:
    """Return the names of all parameters, how many may be given by position, and the defaults; `inspect` loads much."""
    assert type(function) is FunctionType
    code, defaults = function.__code__, function.__defaults__ or ()
    positional = code.co_argcount
    names = code.co_varnames[: positional + code.co_kwonlyargcount]
    by_position = dict(zip(names[positional - len(defaults) : positional], defaults, strict=True))
    return names, positional, by_position | (function.__kwdefaults__ or {})
