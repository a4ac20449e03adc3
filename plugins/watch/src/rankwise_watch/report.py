"""Hang reports: whom a late operation is really waiting for, and what that rank has last done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rankwise_watch.heartbeat import Beat, Beats
from rankwise_watch.judge import LATE_BEATS
from rankwise_watch.liveness import Processes
from rankwise_watch.recorder import describe

_MOST = 4


class Reporter:
    """Says what is known of ranks, by their heartbeats and processes.

    Args:
        rank: This rank.
        beats: Everyone's heartbeats.
        processes: The ranks' processes.
        every_s: How often a rank sends a heartbeat.
        first_s: How long it may take until the first.
    """

    def __init__(self, rank: int, beats: Beats, processes: Processes, every_s: float, first_s: float) -> None:
        self._rank, self._beats, self._processes = rank, beats, processes
        self._every_s, self._old_s = every_s, LATE_BEATS * every_s + first_s

    def explain(self, group: str, members: Sequence[int], text: str, waited_for: Iterable[int]) -> str:
        """Add to the text of a time-out whom an operation is really waiting for."""
        me = self._rank
        waited = sorted(set(waited_for)) or [rank for rank in members if rank != me]
        beats = self._beats.read(members)
        missing = [rank for rank in absentees(waited, members, beats, group) if rank != me] or waited
        return describe_absentees(text, missing, waited, self._words(missing, group, beats))

    def whereabouts(self, text: str, missing: Sequence[int], group: str) -> str:
        """Add to a text about missing ranks what they have last done on a group."""
        return describe_absentees(text, missing, (), self._words(missing, group, self._beats.read(missing)))

    def _words(self, ranks: Sequence[int], group: str, beats: Mapping[int, Beat]) -> dict[int, str]:
        processes, words = self._processes, {}
        for rank in ranks:
            beat = beats.get(rank)
            after_s = self._old_s + self._every_s * (beat is not None and beat.is_told)
            words[rank] = sentence(beat, group, processes.end_of(rank), processes.is_here(rank), after_s)
        return words


def absentees(waited_for: Sequence[int], members: Sequence[int], beats: Mapping[int, Beat], group: str) -> list[int]:
    """Follow who waits for whom, to the ranks that wait for nobody.

    Args:
        waited_for: The global ranks that an operation is waiting for; all members but this rank if it cannot tell.
        members: The group's global ranks.
        beats: The last heartbeats.
        group: The group's name.
    """
    found: list[int] = []
    seen: set[int] = set()
    queue = list(waited_for)
    while queue:
        rank = queue.pop(0)
        if rank in seen:
            continue
        seen.add(rank)
        awaited = _awaited_by(rank, members, beats, group)
        queue += awaited
        if not awaited:
            found.append(rank)
    return sorted(found) or list(waited_for)


def describe_absentees(text: str, ranks: Sequence[int], waited_for: Sequence[int], words: Mapping[int, str]) -> str:
    """Add to the text of a time-out what is known of the ranks that it is due to."""
    if list(ranks) == list(waited_for) and len(ranks) == 1 and text.endswith(f"rank {ranks[0]}"):
        return f"{text}, which {words[ranks[0]]}"
    more = f", and {len(ranks) - _MOST} more ranks" if len(ranks) > _MOST else ""
    return f"{text}; " + "; ".join(f"rank {rank} {words[rank]}" for rank in ranks[:_MOST]) + more


def sentence(beat: Beat | None, group: str, end: str | None, is_here: bool, silent_after_s: float) -> str:
    """Say what a rank has last done, and whether it lives.

    Args:
        beat: Its last heartbeat.
        group: The group's name.
        end: How its process has ended, if it has.
        is_here: Whether its process is on this machine.
        silent_after_s: From what age on a heartbeat is an old one.
    """
    if beat is None:
        return f"is gone: {end}" if end else "is alive" if is_here else "has sent no heartbeat so far"
    doing = _doing(beat.progress.get(group), group)
    if end:
        return f"{doing} and is gone: {end}"
    if beat.left:
        return f"{doing} and has destroyed its groups"
    age_s = beat.age_s()
    if age_s < silent_after_s:
        return f"{doing} and is alive ({age_s:.1f} s ago)"
    return f"{doing} and sent its last heartbeat {age_s:.1f} s ago"


def _doing(progress: Any, group: str) -> str:
    if not progress:
        return f"has called nothing on group {group!r}"
    pending = progress["pending"]
    if pending:
        return f"is in {describe(pending[0])}"
    finished = [step for step in (progress["finished"], progress["message_finished"]) if step]
    if not finished:
        return f"has finished nothing on group {group!r}"
    return f"last finished {describe(min(finished, key=lambda step: step['age_s']))}"


def _awaited_by(rank: int, members: Sequence[int], beats: Mapping[int, Beat], group: str) -> list[int]:
    """Return whom a rank is waiting for itself."""
    beat = beats.get(rank)
    pending = (beat.progress.get(group) or {}).get("pending") if beat is not None else None
    if not pending:
        return []
    step = pending[0]
    if step["message"]:
        return [] if step["peer"] is None else [step["peer"]]
    return [peer for peer in members if peer != rank and _number(beats.get(peer), group) < step["number"]]


def _number(beat: Beat | None, group: str) -> int:
    """Return the number of the last collective that a rank has begun on a group."""
    begun = (beat.progress.get(group) or {}).get("begun") if beat is not None else None
    return begun["number"] if begun else -1
