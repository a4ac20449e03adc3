"""Who is waited for in the messages of a running job, from the last messages that each rank shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rankwise_tools.recordings.blame import Delay, HeldUp, causes, delays, most_waited_for
from rankwise_tools.recordings.clocks import Clock
from rankwise_tools.recordings.messages import History, Message, Side, matched
from rankwise_tools.top.samples import Sample


class Awaited(NamedTuple):
    """The rank that others wait for in the messages of a group: how often, and of how many messages."""

    group: str
    held_up: HeldUp
    messages: int


class Messages:
    """The messages of a job that have lately been received.

    Args:
        remembered_ns: For how long they are remembered.
    """

    def __init__(self, remembered_ns: int) -> None:
        self._remembered_ns = remembered_ns
        #: By group, and then by rank and number of the receive.
        self._known: dict[str, dict[tuple[int, int], Message]] = {}

    def look(self, samples: Mapping[int, Sample], clocks: Mapping[int, Clock]) -> list[Awaited]:
        """Return for each group who is waited for, if somebody is."""
        now_ns = max(sample["now_ns"] + clocks[rank].offset_ns for rank, sample in samples.items())
        for name in {name for sample in samples.values() for name in sample["groups"]}:
            known = self._known.setdefault(name, {})
            known.update(((m.target, m.receive.number), m) for m in matched(_histories(name, samples, clocks)))
            for key in [key for key, m in known.items() if now_ns - m.receive.ended_ns > self._remembered_ns]:
                del known[key]
        found = {name: delays(known.values()) for name, known in self._known.items()}
        return [awaited for name in found if (awaited := self._awaited(name, found)) is not None]

    def _awaited(self, name: str, found: Mapping[str, list[Delay]]) -> Awaited | None:
        elsewhere = [delay for other, mine in found.items() if other != name for delay in mine]
        known = self._known[name].values()
        span_ns = max((m.receive.ended_ns for m in known), default=0) - min((m.send.began_ns for m in known), default=0)
        worst = most_waited_for(causes(found[name], elsewhere), span_ns)
        return None if worst is None else Awaited(name, worst, len(known))


def _histories(name: str, samples: Mapping[int, Sample], clocks: Mapping[int, Clock]) -> dict[int, History]:
    return {
        rank: History(
            [_side(row, clocks[rank].offset_ns) for row in sample["groups"][name]["messages"]],
            sample["now_ns"] + clocks[rank].offset_ns,
            sample["clock"] or sample["host"],
            clocks[rank].error_ns,
        )
        for rank, sample in samples.items()
        if name in sample["groups"]
    }


def _side(row: list[object], shift_ns: int) -> Side:
    side = Side._make(row)
    times = (ns + shift_ns if ns else 0 for ns in (side.asked_ns, side.ended_ns))
    return Side(*side[:5], side.began_ns + shift_ns, *times)


class _Wait(NamedTuple):
    age_ns: int
    rank: int
    group: str
    side: Side


def unanswered(samples: Mapping[int, Sample], after_ns: int) -> Iterator[tuple[int, str, str, int]]:
    """Yield the ranks for which others wait in a message for long: rank, group, what they wait in, and for how long.

    Who waits for a message itself is not the cause, and of ranks that wait for each other none is.
    """
    waits = {rank: wait for rank, sample in samples.items() if (wait := _longest(sample)).age_ns > after_ns}
    found: dict[int, _Wait] = {}
    for wait in waits.values():
        rank, seen = wait.side.peer, set[int | None]()
        while rank in waits and rank not in seen:
            seen.add(rank)
            wait = waits[rank]
            rank = wait.side.peer
        if rank is not None and rank in samples and rank not in waits:
            found[rank] = max(found.get(rank, wait), wait)
    for rank, wait in sorted(found.items()):
        yield rank, wait.group, f"rank {wait.rank}'s {wait.side.call}", wait.age_ns


def _longest(sample: Sample) -> _Wait:
    """Return the message in which a rank waits for longest."""
    waits = [
        _Wait(sample["now_ns"] - side.asked_ns, sample["rank"], name, side)
        for name, group in sample["groups"].items()
        for side in map(Side._make, group["messages"])
        if side.asked_ns and not side.ended_ns and side.peer is not None
    ]
    return max(waits, default=_Wait(0, 0, "", Side(0, "", "", None, 0, 0, 0, 0)))
