"""What one rank shows of itself to readers: where it is, what it has counted, and when it came to each call."""

from __future__ import annotations

import mmap
import os
import socket
import sys
from collections import Counter, defaultdict
from time import monotonic_ns, time_ns
from typing import Any

from rankwise.observing import Entry, PrefixStore, ProcessGroup, World
from rankwise_watch.heartbeat import own_clock
from rankwise_watch.recorder import entries, states, step
from rankwise_watch.stats import of_group

#: The version of what a sample looks like.
FORMAT = 2
#: Beyond so many, groups are left out, and calls of a group.
_MOST_GROUPS, _MOST_ARRIVALS, _MOST_PENDING = 64, 256, 4
#: How many calls all ranks of a large group show together, as one reader reads them all; and each rank at the least.
_ALL_ARRIVALS, _FEWEST_ARRIVALS = 64 << 10, 64


def sample(world: World) -> dict[str, Any]:
    """Return what this rank shows, as plain data. Any thread may call, at any time."""
    world.recorder.count()
    noted = entries(world.recorder)
    conditions = states(noted)
    now = monotonic_ns()
    mine: dict[str, list[tuple[Entry, str]]] = defaultdict(list)
    for entry, state in zip(noted, conditions, strict=True):
        mine[entry.trail.name].append((entry, state))
    default = world.default
    groups = list(world.groups.values())
    return {
        "rankwise_sample": FORMAT,
        "rank": -1 if default is None else default.global_rank,
        "ranks": [] if default is None else list(default.ranks),
        "outside": default.name if default is not None and world.home is not None else "",
        "job": _job(world),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "program": " ".join(sys.argv)[:200],
        "clock": own_clock(),
        "now_ns": now,
        "day_ns": time_ns() - monotonic_ns() + now,
        "memory_nbytes": _resident_nbytes(),
        "groups": {g.name: _group(g, mine[g.name], now) for g in groups[:_MOST_GROUPS]},
    }


def _group(group: ProcessGroup, mine: list[tuple[Entry, str]], now: int) -> dict[str, Any]:
    stats = of_group(group)
    moved: Counter[str] = Counter()
    queued: Counter[str] = Counter()
    shared_nbytes, way = 0, ""
    for communicator in group.communicators():
        gauges = communicator.gauges()
        moved.update(gauges.moved_nbytes)
        queued.update(gauges.queued)
        shared_nbytes, way = shared_nbytes + gauges.memory_nbytes, way or gauges.way
    pending = [entry for entry, state in mine if state in ("running", "issued")]
    begun, ended, message_begun, message_ended = group.trail.marks()
    last = max((e for e in (ended, message_ended) if e is not None), key=lambda e: e.ended_ns, default=None)
    return {
        "description": group.group_desc,
        "ranks": list(group.ranks),
        "backend": group.backend,
        "failure": group.trail.failure,
        "way": way,
        "moved_nbytes": dict(moved),
        "queued": dict(queued),
        "shared_nbytes": shared_nbytes,
        "operations": {op: list(figures) for op, figures in stats.operations.items()},
        "uncounted": stats.uncounted,
        "pending": [step(entry, now) for entry in pending[:_MOST_PENDING]],
        "last": None if last is None else step(last, now),
        "begun": [-1 if entry is None else entry.number for entry in (begun, message_begun)],
        "arrivals": _arrivals(mine, len(group.ranks)),
        "messages": _messages(mine, len(group.ranks)),
    }


def _arrivals(mine: list[tuple[Entry, str]], size: int) -> list[list[Any]]:
    """Return of the last collectives, oldest first: operation, number, when they began, and when they ended or 0."""
    collectives = [entry for entry, _ in mine if entry.detail is None][-_most(size) :]
    return [[e.op, e.number, e.began_ns, e.ended_ns if e.thread else 0] for e in collectives]


def _messages(mine: list[tuple[Entry, str]], size: int) -> list[list[Any]]:
    """Return of the last messages: number, operation, place, peer, tag, and three times, 0 for none.

    They are when it began, when the program began to wait for it, which is the same for a blocking call, and when it
    ended. What has failed has neither a peer nor an end.
    """
    messages = [(entry, state) for entry, state in mine if entry.detail is not None][-_most(size) :]
    return [_message(entry, state) for entry, state in messages]


def _message(entry: Entry, state: str) -> list[Any]:
    peer, tag = entry.detail or (None, 0)
    told, asked_ns = step(entry, entry.began_ns), entry.began_ns if entry.op in ("send", "recv") else entry.asked_ns
    if state == "failed":
        return [entry.number, entry.op, told["at"], None, tag, entry.began_ns, asked_ns, 0]
    return [entry.number, entry.op, told["at"], peer, tag, entry.began_ns, asked_ns, entry.ended_ns]


def _most(size: int) -> int:
    """Return how many calls of a group a rank shows."""
    return min(_MOST_ARRIVALS, max(_FEWEST_ARRIVALS, _ALL_ARRIVALS // size))


def _job(world: World) -> str:
    """Return what the ranks of one job have in common."""
    store, prefixes = world.store, []
    while isinstance(store, PrefixStore):
        prefixes.append(store.prefix)
        store = store.underlying_store
    place = f"{store!r}/{'/'.join(reversed(prefixes))}"
    # Of stores without an address two jobs may have one of the same name; their ranks have different parents.
    return place if store is not None and store.has_address else f"{place} of {os.getppid()}"


def _resident_nbytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except OSError:
        return _most_nbytes()


def _most_nbytes() -> int:
    """Return what this process has had at the most, 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
