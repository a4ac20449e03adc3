"""Rounds of all ranks in step: which messages move at the same time if nobody goes on before his round is over.

A rank by itself takes its rounds one after the other, however far the others are. What carries messages only at times
when all take part, as shared memory does, must know beforehand which of them move at each time: see `in_step`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from rankwise.backends import Recv, Send

#: The rounds of one rank.
_Rounds = Iterator[tuple[Send | Recv, ...]]


class Transfer(NamedTuple):
    """One message.

    Attributes:
        source, target: Whom it is from and for.
        sent: The blocks that it carries.
        received: What its receiver does with it.
    """

    source: int
    target: int
    sent: Sequence[int]
    received: Recv


class Beat(NamedTuple):
    """What happens at one time.

    Attributes:
        transfers: The messages that move, no two of them from one rank to the same other.
        ended: The ranks whose rounds are over then, with all that they have received in these, in order.
    """

    transfers: tuple[Transfer, ...]
    ended: Mapping[int, tuple[Recv, ...]]


@lru_cache(maxsize=64)
def in_step(algorithm: Callable[..., _Rounds], size: int, *args: Any) -> tuple[Beat, ...]:
    """Return the rounds of all ranks in step.

    Raises:
        ValueError: Ranks wait for each other.
    """
    ranks = [_Rank(algorithm(rank, size, *args)) for rank in range(size)]
    beats = []
    while any(rank.goes_on for rank in ranks):
        transfers = tuple(
            Transfer(number, to, sends[0].blocks, ranks[to].receives[number][0])
            for number, rank in enumerate(ranks)
            for to, sends in rank.sends.items()
            if sends and ranks[to].receives.get(number)
        )
        if not transfers:
            raise ValueError(
                f"{getattr(algorithm, '__name__', algorithm)} of {size} ranks has them wait for each other"
            )
        for source, target, *_ in transfers:
            ranks[source].sends[target].popleft()
            ranks[target].receives[source].popleft()
        over = [(number, rank.received) for number, rank in enumerate(ranks) if rank.goes_on and rank.is_done()]
        beats.append(Beat(transfers, dict(over)))
        for number, _ in over:
            ranks[number].next_round()
    return tuple(beats)


class _Rank:
    """Where one rank is.

    Attributes:
        goes_on: Whether it is in a round.
        received: What it receives in that, in order.
        sends, receives: What is left of it, by the other rank.
    """

    def __init__(self, rounds: _Rounds) -> None:
        self._rounds = rounds
        self.next_round()

    def next_round(self) -> None:
        """Begin the next round that has anything to do."""
        steps = next((steps for steps in self._rounds if steps), ())
        self.goes_on = bool(steps)
        self.received = tuple(step for step in steps if isinstance(step, Recv))
        self.sends: dict[int, deque[Send]] = {}
        self.receives: dict[int, deque[Recv]] = {}
        for step in steps:
            if isinstance(step, Send):
                self.sends.setdefault(step.to, deque()).append(step)
            else:
                self.receives.setdefault(step.source, deque()).append(step)

    def is_done(self) -> bool:
        """Tell whether nothing is left of the round."""
        return not any(self.sends.values()) and not any(self.receives.values())
