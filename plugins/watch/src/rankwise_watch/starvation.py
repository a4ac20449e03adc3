"""Processes of this host that send no heartbeat because they get no processor: they are slow, and not hung.

With some hundred ranks on a few processors each of them may wait for seconds until it is its turn. A thread that wants
a processor and gets none is in the scheduler's books: it is runnable and has hardly run, or it has run after a wait.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

#: The part of a stretch of time for which a process must have wanted a processor in vain.
_MOST_OF_IT = 0.5
#: Two looks that are closer than this are one.
_SHORTEST_S = 0.02


class Thread(NamedTuple):
    """What the scheduler says of a thread.

    Attributes:
        is_runnable: It runs, or wants to.
        ran_s: For how long it has run.
        waited_s: For how long it has waited for a processor, but for a wait that lasts.
    """

    is_runnable: bool
    ran_s: float
    waited_s: float


class Starvation:
    """For how long processes have been waiting for a processor since they were first looked at."""

    def __init__(self) -> None:
        self._looks: dict[int, tuple[float, Mapping[str, Thread]]] = {}
        self._starved_s: dict[int, float] = {}

    def starved_s(self, pid: int, unseen_s: float = 0.0) -> float:
        """Look at a process, and return for how long it has been starved; called again and again while it is silent.

        Args:
            pid: The process.
            unseen_s: For how long it may have been starved before anybody has looked, if it wants a processor now.
        """
        now, starved_s = monotonic(), self._starved_s.get(pid, 0.0)
        before_at, before = self._looks.get(pid, (now, {}))
        if before and now - before_at < _SHORTEST_S:
            return starved_s
        threads = look(pid)
        if pid not in self._looks and any(thread.is_runnable for thread in threads.values()):
            starved_s = self._starved_s[pid] = unseen_s
        self._looks[pid] = now, threads
        most_s = _MOST_OF_IT * (now - before_at)
        if _is_starved([(before[name], thread) for name, thread in threads.items() if name in before], most_s):
            starved_s = self._starved_s[pid] = starved_s + now - before_at
        return starved_s

    def forget(self, pid: int) -> None:
        """Begin again with a process, which has sent a heartbeat."""
        self._looks.pop(pid, None)
        self._starved_s.pop(pid, None)


def _is_starved(threads: Sequence[tuple[Thread, Thread]], most_s: float) -> bool:
    """Tell it from what threads were and are: those of one interpreter take turns, so that their waits add up."""
    if sum(now.waited_s - before.waited_s for before, now in threads) > most_s:
        return True
    return any(before.is_runnable and now.is_runnable and now.ran_s - before.ran_s < most_s for before, now in threads)


def look(pid: int) -> dict[str, Thread]:
    """Return what the scheduler says of a process's threads; nothing where the kernel does not tell."""
    found: dict[str, Thread] = {}
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
                ran, waited = _read(f"/proc/{pid}/task/{name}/schedstat").split()[:2]
                state = _read(f"/proc/{pid}/task/{name}/stat").rpartition(")")[2].split()[0]
                found[name] = Thread(state == "R", int(ran) / 1e9, int(waited) / 1e9)
    return found


def _read(path: str) -> str:
    # opens: nothing, the kernel says it
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
