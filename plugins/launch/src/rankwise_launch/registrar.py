"""What the head of a job decides: who is in, as which node, who is lost, and when the job begins.

It has no sockets, threads or clocks either: it is told what launchers have said and how much time has passed, and
yields entries for the log (`roster.py`). Each launcher that may be the head one day has it, and is told of all that
come; until then it only looks after the head, and a few that would be the head before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import NamedTuple

from rankwise_launch.config import UNNUMBERED, ExitCode
from rankwise_launch.roster import Entry, Member, Roster
from rankwise_launch.words import Watch

#: How many of those that would be the head before a launcher it looks after, beside those that are gone.
_NEXT = 4


class Card(NamedTuple):
    """What a launcher says of itself that wants to be in the job.

    Attributes:
        launcher: What tells it from all others.
        host: Where it runs.
        size: How many ranks it has.
        wanted: The number that it was given, or `UNNUMBERED`.
    """

    launcher: str
    host: str
    size: int
    wanted: int = UNNUMBERED


class Patience(NamedTuple):
    """How long node 0 waits.

    Attributes:
        silence_s: For a word of a launcher.
        join_s: For nodes that must come, or come back, and how long one waits for a place.
        last_call_s: For more nodes, once the least number is there.
    """

    silence_s: float
    join_s: float
    last_call_s: float


class Registrar:
    """Decides for the head.

    Args:
        roster: The job. What this yields is applied to it before the next is asked for.
        me: This launcher, which has to be among those that come.
        patience: How long it waits.
        place: Where the launchers meet, for messages.
        store: Where node 0 serves the store of the ranks.

    Attributes:
        store: As above, in the next round.
        difference: In what a launcher was started otherwise, if one was before the job had begun.
    """

    def __init__(self, roster: Roster, me: str, patience: Patience, place: str, store: str = "") -> None:
        self._roster, self._me, self._patience, self._place = roster, me, patience, place
        self.store, self.difference = store, ""
        #: Who waits for a place, in the order in which they came, and for how long this launcher has been the head.
        self._waiting: dict[str, tuple[Card, float]] = {}
        self._watches: dict[str, Watch] = {}
        #: Those of them that are gone, and what has become of them.
        self._gone: dict[str, str] = {}
        self._gathering_s = self._calling_s = self._short_s = 0.0

    def come(self, card: Card) -> None:
        """Take note of a launcher that wants to be in the job."""
        self._waiting[card.launcher] = card, 0.0
        self._forget()

    def watched(self) -> list[str]:
        """Return the launchers whose words are needed: to the head those of all others, to these that of the head.

        And those of the next few that would be the head before this launcher: if several are gone, it need not wait for
        one after the other.
        """
        if self._is_head():
            there = dict.fromkeys([*(member.launcher for member in self._roster.living()), *self._waiting])
            return [launcher for launcher in there if launcher != self._me]
        before = [member.launcher for member in self._roster.before(self._me)]
        gone = sum(1 for _ in takewhile(self._gone.__contains__, before))
        return before[: gone + _NEXT]

    def look(self, words: Mapping[str, bytes], passed_s: float, has_heard: bool = True) -> Iterator[Entry]:
        """Yield what there is to be decided.

        Args:
            words: What each of those has said last.
            passed_s: How much time has passed since the last look.
            has_heard: Whether those that meet have been told of all ranks that are lost; until then nobody takes the
                place of any.
        """
        self._forget()
        yield from self._miss(words, passed_s)
        if self._roster.head is None:
            yield from self._be_the_first()
        if not self._is_head():
            return
        if self.difference and self._roster.round < 0:
            yield self._over(ExitCode.USAGE, self.difference)
        if self._roster.verdict is None:
            yield from self._admit(passed_s, has_heard)
            yield from self._begin(passed_s)
            yield from self._despair(passed_s)
        else:
            is_well = self._roster.verdict.success
            yield from self._turn_away("the job is ending", ExitCode.UNNEEDED if is_well else ExitCode.NODE_MISSING)

    def _forget(self) -> None:
        """Wait no more for those about whom this launcher, or the head before it, has decided."""
        decided = self._roster.came | self._roster.refused.keys()
        self._waiting = {launcher: kept for launcher, kept in self._waiting.items() if launcher not in decided}

    # ------------------------------------------------------------------ who is gone

    def _miss(self, words: Mapping[str, bytes], passed_s: float) -> Iterator[Entry]:
        self._watches = {launcher: self._watches.get(launcher) or Watch() for launcher in words}
        found = [
            (launcher, watch.why_gone(words[launcher], passed_s, self._patience.silence_s))
            for launcher, watch in self._watches.items()
        ]
        self._gone = {launcher: text for launcher, text in found if text}
        if self._is_head() or all(member.launcher in self._gone for member in self._roster.before(self._me)):
            for launcher, text in self._gone.items():
                if self._waiting.pop(launcher, None) is None:
                    yield "lost", self._me, launcher, text

    def _is_head(self) -> bool:
        head = self._roster.head
        return head is not None and head.launcher == self._me

    def _be_the_first(self) -> Iterator[Entry]:
        """Be the head of a job that has none, unless another is faster."""
        card, _ = self._waiting.get(self._me, (None, 0.0))
        if card is not None and self._roster.verdict is None:
            yield "enrol", self._me, max(card.wanted, 0), self._me, card.host, card.size
            self._forget()

    # ------------------------------------------------------------------ who is in

    def _admit(self, passed_s: float, has_heard: bool) -> Iterator[Entry]:
        if self._roster.is_finishing:
            yield from self._turn_away("the job is finishing, and takes in no more nodes", ExitCode.UNNEEDED)
        may_come = self._may_come(has_heard)
        for launcher, (card, waited_s) in list(self._waiting.items()):
            number = self._number_for(card) if may_come else None
            if number is not None:
                yield "enrol", self._me, number, launcher, card.host, card.size
                if self._roster.of(launcher) is not None:  # else a rank has ended well just before
                    del self._waiting[launcher]
            elif refusal := self._refusal(card, waited_s + passed_s):
                del self._waiting[launcher]
                yield "refuse", self._me, launcher, ExitCode.USAGE, refusal
            else:
                self._waiting[launcher] = card, waited_s + passed_s

    def _may_come(self, has_heard: bool) -> bool:
        """Tell whether there is a place now for those that wait.

        Those for whom all ranks start again come together: until there is a last call for more of them, ranks go on.
        """
        roster = self._roster
        if not (roster.has_begun and roster.restarts_all):
            return has_heard or not roster.has_begun
        longest_s = max((waited_s for _, waited_s in self._waiting.values()), default=0.0)
        will_be = len(roster.living()) + len(self._waiting)
        return longest_s >= self._patience.last_call_s or will_be >= roster.terms.most

    def _turn_away(self, text: str, code: int) -> Iterator[Entry]:
        for launcher in list(self._waiting):
            del self._waiting[launcher]
            yield "refuse", self._me, launcher, code, text

    def _number_for(self, card: Card) -> int | None:
        """Return the number that a node can have: that of a lost one with as many ranks, or a new one; else None."""
        members = self._roster.members
        if len(self._roster.living()) >= self._roster.terms.most:
            return None
        if card.wanted != UNNUMBERED:
            return card.wanted if _is_vacant(members.get(card.wanted), card.size) else None
        lost = (number for number, member in sorted(members.items()) if _is_vacant(member, card.size))
        return next(lost, next(number for number in range(len(members) + 1) if number not in members))

    def _refusal(self, card: Card, waited_s: float) -> str:
        """Say why a launcher waits no longer for a place; "" if it may."""
        member, terms = self._roster.members.get(card.wanted), self._roster.terms
        if member is not None and member.is_lost and member.size != card.size:
            size = member.size
            return f"node {member.number} of this job has {size} rank{'s' * (size != 1)}; start it with -n {size}"
        if self._roster.has_spares and waited_s < self._patience.join_s:
            return ""
        if member is not None and not member.is_lost:
            return f"another launcher, on {member.host}, is node {member.number} already; check --node-rank"
        return f"there are {terms.most} launchers already that meet at {self._place}, as --nnodes says"

    # ------------------------------------------------------------------ when it begins, and when it is given up

    def _begin(self, passed_s: float) -> Iterator[Entry]:
        roster, terms = self._roster, self._roster.terms
        if roster.has_begun:
            self._gathering_s = self._calling_s = 0.0
        if roster.has_begun or not roster.is_ready:
            return
        count, ranks = len(roster.members), sum(member.size for member in roster.members.values())
        self._gathering_s += passed_s
        self._calling_s = self._calling_s + passed_s if count >= terms.least else 0.0
        time_is_up = self._gathering_s >= self._patience.join_s
        has_called = count >= terms.least and (time_is_up or self._calling_s >= self._patience.last_call_s)
        if count >= terms.least and (roster.is_complete or (has_called and ranks >= roster.min_ranks)):
            yield "begin", self._me, self.store
        elif time_is_up and roster.round < 0:
            yield self._over(ExitCode.NODE_MISSING, self._missing())
        elif time_is_up:
            yield self._over(ExitCode.NODE_LOST, self._left())

    def _missing(self) -> str:
        terms, numbers = self._roster.terms, self._roster.members
        within = f"at {self._place} within {self._patience.join_s:g} s"
        if terms.least < terms.most:
            return f"only {_nodes(len(numbers))} joined {within}; the job begins with at least {terms.least}"
        lacking = [str(number) for number in range(terms.most) if number not in numbers]
        nodes = f"node {lacking[0]} has" if len(lacking) == 1 else f"nodes {', '.join(lacking)} have"
        command = f"rankwise run --nnodes {terms.most} --node-rank {lacking[0]} ..."
        return f"{nodes} not joined {within}; start `{command}` there"

    def _despair(self, passed_s: float) -> Iterator[Entry]:
        roster = self._roster
        is_waiting = roster.is_short and not roster.is_finishing
        self._short_s = self._short_s + passed_s if is_waiting else 0.0
        if is_waiting and self._short_s >= self._patience.join_s:
            yield self._over(ExitCode.NODE_LOST, self._left())

    def _left(self) -> str:
        count, limit = len(self._roster.living()), f"none has come for {self._patience.join_s:g} s"
        return f"only {count} of at least {self._roster.terms.least} nodes {_is(count)} left, and {limit}"

    def _over(self, code: ExitCode, text: str) -> Entry:
        me = self._roster.of(self._me)
        assert me is not None
        verdict = {"success": False, "node_rank": me.number, "host": me.host, "exit_code": int(code), "text": text}
        return "give", self._me, verdict


def _is_vacant(member: Member | None, size: int) -> bool:
    return member is None or (member.is_lost and member.size == size)


def _nodes(count: int) -> str:
    return "1 node has" if count == 1 else f"{count} nodes have"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
