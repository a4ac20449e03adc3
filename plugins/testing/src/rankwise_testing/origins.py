"""The processes that ranks of the harness are forked from."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

from rankwise_launch.toolbox import Forked, LaunchError, Preloaded

#: What is loaded before ranks are forked.
_LOADED = ("numpy", "rankwise", "rankwise_testing.messages", "multiprocessing.connection")
#: What pytest changes with each test, and no module reads as it is loaded.
_OF_ONE_TEST = "PYTEST_CURRENT_TEST"

#: Where ranks find modules first, and the environment of what they are forked from.
_Wanted = tuple[str, frozenset[tuple[str, str]]]


class Origin:
    """The process that ranks are forked from, as it has loaded all that a first group loads.

    It is started when it is needed, and again once the environment is another. Where it cannot be had, such as with
    modules that start threads, ranks are started one by one. Within `kept_origins` it takes one that another has left.

    Args:
        wanted: Whether ranks are to be forked at all.
    """

    def __init__(self, wanted: bool = True) -> None:
        self._may_fork = wanted and sys.platform == "linux"  # elsewhere system libraries may not survive it
        self._preloaded: Preloaded | None = None
        self._wanted: _Wanted | None = None

    def prepare(self, environment: Mapping[str, str]) -> None:
        """Have a process with this environment, if it can be had."""
        wanted = os.getcwd(), frozenset(item for item in environment.items() if item[0] != _OF_ONE_TEST)
        if self._wanted == wanted:
            return
        self.close()
        self._preloaded = _kept.pop(wanted, None) if self._may_fork else None
        if self._preloaded is None and self._may_fork:
            with contextlib.suppress(LaunchError):
                self._preloaded = Preloaded(_LOADED, environment, os.getcwd())
        self._wanted = wanted

    def fork(self, command: Sequence[str], environment: Mapping[str, str], output: int) -> Forked | None:
        """Fork a rank that runs a module, if that can be."""
        if self._preloaded is None:
            return None
        with open(os.devnull, "rb") as null, contextlib.suppress(LaunchError):
            return self._preloaded.fork_into((null.fileno(), output, output), command, environment)
        return None

    def close(self) -> None:
        """End the process, or leave it to others; again does nothing."""
        if self._preloaded is not None and self._wanted is not None:
            _leave(self._wanted, self._preloaded)
        self._preloaded = self._wanted = None


#: Processes that nobody forks from now, and how many there may be.
_kept: OrderedDict[_Wanted, Preloaded] = OrderedDict()
_most_kept = 0


@contextlib.contextmanager
def kept_origins(most: int) -> Iterator[None]:
    """Let processes that ranks are forked from outlive their pools, up to so many, for pools that want the same."""
    global _most_kept
    before, _most_kept = _most_kept, most
    _end_beyond(most)
    try:
        yield
    finally:
        _most_kept = before
        _end_beyond(before)


def _leave(wanted: _Wanted, preloaded: Preloaded) -> None:
    if wanted in _kept or not preloaded.is_ready():
        preloaded.close()
        return
    _kept[wanted] = preloaded
    _end_beyond(_most_kept)


def _end_beyond(most: int) -> None:
    with contextlib.suppress(KeyError):  # another thread has ended the last
        while len(_kept) > most:
            _kept.popitem(last=False)[1].close()  # that which nobody has wanted for longest
