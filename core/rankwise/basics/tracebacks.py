"""Short tracebacks: an error about a call ends at the program's line, with one frame of this package below it.

Each public function has its body in a `with shortened`, which leaves the function what it is (no wrapper around it) and
shows its own line. Where a tenth of a microsecond matters it is a `try` whose handler calls `shorten` and raises again,
which costs nothing as long as nothing is raised. Everything is shown with `RANKWISE_DEBUG=detail`, and of whatever may
be a flaw: in this package, in a backend of somebody else, or in what the program has given to be called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from copy import copy
from types import TracebackType
from typing import TypeVar

from rankwise.basics.arguments import name_argument
from rankwise.basics.debug import DebugLevel, get_debug_level
from rankwise.errors import DistError

_Error = TypeVar("_Error", bound=BaseException)

#: What stands between the call and its error without being of interest to the caller; devices add their own.
libraries = {"mpi4py", "msgpack", "numpy", "pluggy", "zmq", *sys.stdlib_module_names}


def shorten(error: BaseException) -> None:
    """Cut off a caught error's traceback below the function that raises it again, if it is about the call itself.

    If an argument is wrong, the error says which.
    """
    trace = error.__traceback__
    if trace is not None and not (trace.tb_next and has_foreign(trace.tb_next)):
        name_argument(error, trace.tb_frame)
    if trace is None or trace.tb_next is None or _all_is_wanted() or not _is_about_the_call(error, trace.tb_next):
        return
    trace.tb_next = None
    for shown, reason in _reasons(error):
        if reason.__traceback__ is not None and has_foreign(reason.__traceback__):
            continue
        reason.__traceback__ = None
        if isinstance(reason, (DistError, TypeError, ValueError)) and str(reason) in str(shown):  # which says it all
            shown.__cause__ = reason.__cause__


class _Shortened:
    """Shortens the traceback of whatever error ends its block."""

    def __enter__(self) -> None:
        """Have nothing to do."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            shorten(error)


#: The one that all use: `with shortened: ...`.
shortened = _Shortened()


def anew(error: _Error) -> _Error:
    """Return an error's like, without its traceback and its cause.

    An error that is kept, to be raised at each call or on several threads, is never raised itself, but its like: it
    would keep what is in the frames that it has come through, such as arrays, for as long as it is kept.
    """
    return copy(error) if isinstance(error, DistError) else error


def _all_is_wanted() -> bool:
    try:
        return get_debug_level() is DebugLevel.DETAIL
    except ValueError:  # the environment names no level, as another error will say
        return False


def _is_about_the_call(error: BaseException, below: TracebackType) -> bool:
    if not isinstance(error, (DistError, TypeError, ValueError, KeyboardInterrupt)) or has_foreign(below):
        return False
    *_, last = _packages(below)
    return isinstance(error, (DistError, KeyboardInterrupt)) or _is_ours(last)


def _reasons(error: BaseException) -> Iterator[tuple[BaseException, BaseException]]:
    """Yield an error and what is shown before it as its cause, then that and its own cause, and so on."""
    seen = {id(error)}
    while True:
        other = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if other is None or id(other) in seen:
            return
        seen.add(id(other))
        yield error, other
        error = other


def has_foreign(trace: TracebackType) -> bool:
    """Tell whether a frame is neither of this package nor of the libraries that it uses."""
    return not all(_is_ours(module) or module in libraries for module in _packages(trace))


def modules(trace: TracebackType | None) -> Iterator[str]:
    """Yield the module of each frame, the outermost first."""
    while trace is not None:
        yield str(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next


def _packages(trace: TracebackType) -> Iterator[str]:
    return (module.partition(".")[0] for module in modules(trace))


def _is_ours(module: str) -> bool:
    return module == "rankwise" or module.startswith("rankwise_")


# Whose frames are not the program's: those of this package, and of wrappers around it that have said so

#: The files, and the folders, each with the separator. Recorders share the list itself, and see what is added later.
skipped = [os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep]
#: Files met so far that are the program's, and that are not: looking one up takes a fraction of comparing the path.
known_outside: set[str] = set()
known_inside: set[str] = set()


def skip_callers(*modules: str) -> None:
    """Make errors and the flight recorder name the line that calls these modules, instead of a line in them.

    For wrappers around rankwise, whose users look for their own lines. It holds for the process, from now on, and costs
    nothing in calls that come from elsewhere. A call that no other frame has led to, as one from a thread that was not
    started in Python, keeps the outermost line.

    Args:
        modules: Names of modules; a package stands for all that is in it.

    Raises:
        ModuleNotFoundError: There is no such module.
        ValueError: It has no file.

    Examples:
        >>> dist.skip_callers("json")
    """
    try:
        found = [path for module in modules for path in _paths(module)]
        skipped.extend(path for path in found if path not in skipped)
        known_outside.clear()  # those inside stay there
    except BaseException as error:
        shorten(error)
        raise


def is_skipped(file: str) -> bool:
    """Tell whether a frame of a file is not the program's."""
    if file in known_inside:
        return True
    is_inside = file.startswith(tuple(skipped))
    (known_inside if is_inside else known_outside).add(file)
    return is_inside


def _paths(name: str) -> list[str]:
    from importlib.util import find_spec

    module = sys.modules.get(name)
    spec = find_spec(name) if module is None else getattr(module, "__spec__", None)
    if module is None and spec is None:
        raise ModuleNotFoundError(f"skip_callers: there is no module {name!r}", name=name)
    folders = getattr(module, "__path__", None) or (spec and spec.submodule_search_locations)
    if folders:
        return [os.path.abspath(folder) + os.sep for folder in folders]
    file = getattr(module, "__file__", None) or (spec and spec.has_location and spec.origin)
    if not file:
        raise ValueError(f"skip_callers: module {name!r} has no file")
    return [file]
