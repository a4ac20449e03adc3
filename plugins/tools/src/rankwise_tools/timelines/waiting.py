"""Who was waited for in the records of one world: in collectives by the last to come, in messages by the other side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rankwise_tools.recordings.arrivals import CompleteCollective, lateness, latest
from rankwise_tools.recordings.blame import Delay, Held, causes, delays, most_waited_for
from rankwise_tools.recordings.clocks import TOGETHER
from rankwise_tools.recordings.messages import Message
from rankwise_tools.recordings.records import Record
from rankwise_tools.timelines.aligned import Aligned, all_aligned


@dataclass(frozen=True)
class Waiting:
    """Who waited for whom.

    Attributes:
        met: The collectives that wait for all and to which all have come, by group and number.
        messages: Those of which both sides are known, by group.
        held: Who was the cause of waits for messages, by group.
        delays: What rank waited for another in its own side of a message, by group, rank and the side's number.
        links: Where the message of a side is in `messages`, likewise.
    """

    met: Mapping[tuple[str, int], CompleteCollective]
    messages: Mapping[str, Sequence[Message]]
    held: Mapping[str, Sequence[Held]]
    delays: Mapping[tuple[str, int, int], Delay]
    links: Mapping[tuple[str, int, int], int]


def waiting(found: Aligned) -> Waiting:
    """Return who waited for whom."""
    met = {k: each for k, each in found.meetings().items() if each.op in TOGETHER and found.is_complete(k, each)}
    messages = found.messages()
    own = {name: delays(sent) for name, sent in messages.items()}
    elsewhere = {name: [d for other, theirs in own.items() if other != name for d in theirs] for name in own}
    together = [delay for meeting in met.values() for delay in _in_collective(meeting)]
    held = {name: causes(mine, [*elsewhere[name], *together]) for name, mine in own.items()}
    by_side = {(name, each.rank, each.number): each for name, mine in own.items() for each in mine}
    return Waiting(met, messages, held, by_side, _links(messages))


def _links(messages: Mapping[str, Sequence[Message]]) -> dict[tuple[str, int, int], int]:
    return {
        (name, *side): place
        for name, sent in messages.items()
        for place, each in enumerate(sent)
        for side in ((each.source, each.send.number), (each.target, each.receive.number))
    }


def _in_collective(meeting: CompleteCollective) -> Iterator[Delay]:
    """Yield for how long each rank waited for the last one in a collective."""
    last = max(meeting.came_ns, key=lambda rank: meeting.came_ns[rank])
    for rank, came_ns in meeting.came_ns.items():
        if came_ns < meeting.complete_ns:
            yield Delay(
                rank, last, came_ns, meeting.complete_ns, meeting.op, f"{meeting.op} #{meeting.number}", meeting.number
            )


def waited_for(records: Mapping[int, Record]) -> list[str]:
    """Say who was waited for in each group of one world."""
    return [told for found in all_aligned([records]) for told in sentences(found, waiting(found))]


def sentences(found: Aligned, waited: Waiting) -> list[str]:
    """Say who was waited for in each group: in its collectives, and in its messages."""
    told = []
    for name, group in {n: g for r in found.records.values() for n, g in r.groups.items()}.items():
        worst = latest(lateness([each for key, each in sorted(waited.met.items()) if key[0] == name]))
        if worst is not None:
            told.append(
                f"rank {worst.rank} was waited for: it held up {worst.held_up} of {worst.calls} collectives of group "
                f"{group.description!r}, by {worst.late_ns / 1e6:.2f} ms at the median"
            )
        messages = waited.messages[name]
        late = most_waited_for(waited.held[name], _span_ns(messages))
        if late is not None:
            told.append(late.sentence(len(messages), group.description))
    return told


def _span_ns(messages: Sequence[Message]) -> int:
    """Return for how long there were messages."""
    return max((m.receive.ended_ns for m in messages), default=0) - min((m.send.began_ns for m in messages), default=0)
