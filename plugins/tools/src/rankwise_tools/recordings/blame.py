"""Who is the cause of waits for messages: who waits for a rank that itself waits for another, waits for that one."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from rankwise_tools.recordings.arrivals import NOTABLE_NS, stands_out
from rankwise_tools.recordings.messages import Message, Side

#: Who is waited for is named, however rarely that was, if it costs others such a part of the time, and so many times as
#: much as any other rank does.
_PART, _TIMES, _FEWEST = 0.05, 4, 3


class Delay(NamedTuple):
    """The time in which one rank waited while another had not come; what both called is in words.

    `number` is that of the operation in which the rank waited.
    """

    rank: int
    peer: int
    from_ns: int
    to_ns: int
    waiting: str
    late: str
    number: int
    error_ns: int = 0


class Held(NamedTuple):
    """The part of a delay of which one rank is the cause, and what it came late to."""

    delay: Delay
    cause: int
    late: str
    ns: int


class HeldUp(NamedTuple):
    """The rank that others wait for in messages.

    Attributes:
        rank: The rank.
        held_up: How many waits for messages it holds up.
        late_ns: By how much, at their median.
        cost_ns: By how much in all.
        who: The ranks that wait for it where that costs most.
        waiting: What they wait in there.
        late: What it comes late to there.
    """

    rank: int
    held_up: int
    late_ns: int
    cost_ns: int
    who: tuple[int, ...]
    waiting: str
    late: str

    def sentence(self, messages: int, group: str) -> str:
        """Say so in words."""
        who = f"rank{'s' if len(self.who) > 1 else ''} {', '.join(map(str, self.who))}"
        return (
            f"rank {self.rank} was waited for: it held up {self.held_up} of {messages} messages of group {group!r}, by "
            f"{self.late_ns / 1e6:.2f} ms at the median, {self.cost_ns / 1e6:.0f} ms in all; {who} waited in "
            f"{self.waiting} for its {self.late}"
        )


def delays(messages: Iterable[Message]) -> list[Delay]:
    """Return for how long receivers waited before anybody sent, and senders before anybody received.

    What follows is the time that the message takes. Where clocks are not known, nobody can tell these apart.
    """
    found = []
    for message in messages:
        if message.error_ns is not None and message.source != message.target:
            receiver, sender = (message.target, message.receive), (message.source, message.send)
            found += [*_delay(receiver, sender, message.error_ns), *_delay(sender, receiver, message.error_ns)]
    return found


def _delay(waiting: tuple[int, Side], late: tuple[int, Side], error_ns: int) -> Iterator[Delay]:
    (rank, mine), (peer, other) = waiting, late
    if not mine.asked_ns or not mine.ended_ns:
        return
    if mine.sends and other.began_ns > mine.ended_ns:
        return  # it did not wait for the receiver
    to_ns = min(other.began_ns, mine.ended_ns)
    if to_ns > mine.asked_ns:
        yield Delay(rank, peer, mine.asked_ns, to_ns, mine.call, other.call, mine.number, error_ns)


def causes(wanted: Iterable[Delay], others: Iterable[Delay] = ()) -> list[Held]:
    """Return who is the cause of delays; `others` are those in which ranks waited for something else meanwhile."""
    wanted = list(wanted)
    of: dict[int, list[Delay]] = defaultdict(list)
    for delay in sorted([*wanted, *others], key=lambda each: each.to_ns):
        of[delay.rank].append(delay)
    ends = {rank: [delay.to_ns for delay in mine] for rank, mine in of.items()}
    return [held for delay in wanted for held in _causes(delay, of, ends)]


def _causes(delay: Delay, of: Mapping[int, Sequence[Delay]], ends: Mapping[int, Sequence[int]]) -> Iterator[Held]:
    """Follow the waits: the time in which the late rank waited itself is that of the rank which it waited for."""
    sums: Counter[tuple[int, str]] = Counter()
    ahead = [(delay.peer, delay.late, delay.from_ns, delay.to_ns, frozenset({delay.rank}))]
    while ahead:
        rank, late, at_ns, to_ns, seen = ahead.pop()
        mine = of.get(rank, ())
        for place in range(bisect_left(ends.get(rank, ()), at_ns), len(mine)):
            own = mine[place]
            if own.peer in seen or own.from_ns >= to_ns or own.to_ns <= at_ns:
                continue
            begin_ns, end_ns = max(at_ns, own.from_ns), min(to_ns, own.to_ns)
            sums[rank, late] += begin_ns - at_ns
            ahead.append((own.peer, own.late, begin_ns, end_ns, seen | {rank}))
            at_ns = end_ns
            if at_ns >= to_ns:
                break
        sums[rank, late] += to_ns - at_ns
    for cause in dict.fromkeys(rank for rank, _ in sums):
        parts = {late: ns for (rank, late), ns in sums.items() if rank == cause and ns > 0}
        if parts:
            yield Held(delay, cause, max(parts, key=parts.__getitem__), sum(parts.values()))


def most_waited_for(held: Iterable[Held], span_ns: int) -> HeldUp | None:
    """Return the rank that others wait for in messages, if there is one."""
    by_rank: dict[int, list[Held]] = defaultdict(list)
    for each in held:
        if each.ns >= max(NOTABLE_NS, each.delay.error_ns):
            by_rank[each.cause].append(each)
    cost = sorted(((sum(each.ns for each in mine), rank) for rank, mine in by_rank.items()), reverse=True)
    if not cost:
        return None
    (cost_ns, rank), second_ns = cost[0], cost[1][0] if len(cost) > 1 else 0
    mine, second = by_rank[rank], max((len(by_rank[other]) for _, other in cost[1:]), default=0)
    is_dear = len(mine) >= _FEWEST and cost_ns >= max(_PART * span_ns, _TIMES * second_ns)
    return _told(rank, mine) if is_dear or stands_out(len(mine), second) else None


def _told(rank: int, mine: Sequence[Held]) -> HeldUp:
    places: Counter[tuple[str, str]] = Counter()
    for each in mine:
        places[each.delay.waiting, each.late] += each.ns
    (waiting, late), _ = places.most_common(1)[0]
    who = {each.delay.rank for each in mine if (each.delay.waiting, each.late) == (waiting, late)}
    times = [each.ns for each in mine]
    return HeldUp(rank, len(mine), int(median(times)), sum(times), tuple(sorted(who)), waiting, late)
