"""Which nodes and ranks a job has: a protocol without sockets, threads or clocks.

The launchers of a job write entries into one log, in an order that is the same for all. Each launcher applies them to a
`Roster`, so all launchers have the same opinion about which nodes are in the job, which ranks are lost, and how the job
ends. An entry is a kind, the launcher that has written it, and what that kind needs. A launcher that the others have
given up changes nothing any more, whatever it writes.

One launcher decides who is in: that of the *head*, the node with the lowest number that is there. Where node 0 serves
the log that is always node 0. Where the log lies elsewhere, a launcher that finds all before it gone says so, and is
the head.

This roster is that of an elastic job, which has one round. The ranks of a node keep their numbers as long as the job
lasts: a node that comes back has the ranks that it had, and one that comes late has numbers beyond all others. Jobs
whose ranks all start again are in `rounds.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from rankwise_launch.config import ExitCode
from rankwise_launch.verdict import Verdict

#: A kind, the launcher that has written it, and what the kind needs.
Entry: TypeAlias = Sequence[Any]


class Terms(NamedTuple):
    """What all launchers of a job were told.

    Attributes:
        least: With how many nodes the job may begin.
        most: How many there may be.
        max_restarts: How many ranks may be started again.
        min_ranks: With how many ranks the job goes on; None if that follows from the nodes.
    """

    least: int = 1
    most: int = 1
    max_restarts: int = 0
    min_ranks: int | None = None

    @property
    def least_later(self) -> int:
        """With how many nodes the job goes on: a fixed number of nodes is only what it begins with."""
        return self.least if self.least < self.most else 1


@dataclass
class Member:
    """A node that is in the job, or was.

    Attributes:
        number: Its number.
        launcher: What tells its launcher from all others.
        host: Where that runs.
        size: How many ranks it has.
        first_rank: The first of them.
        is_lost: Whether its launcher is gone.
        is_done: Whether its ranks have all ended, and its launcher waits for the others.
        finished: The ranks that have ended well.
        given_up: The ranks that have failed and are not started again.
    """

    number: int
    launcher: str
    host: str
    size: int
    first_rank: int = 0
    is_lost: bool = False
    is_done: bool = False
    finished: set[int] = field(default_factory=set)
    given_up: set[int] = field(default_factory=set)

    @property
    def ranks(self) -> range:
        """Its ranks."""
        return range(self.first_rank, self.first_rank + self.size)


class NodeLost(NamedTuple):
    """News: the job has a node less.

    Attributes:
        number: Its number.
        host: Where it was.
        text: What has become of its launcher.
        ranks: The ranks that are lost with it.
        left: How many ranks the job has left.
        ends: Whether that ends the job.
        is_awaited: Whether the job ends unless another comes.
    """

    number: int
    host: str
    text: str
    ranks: tuple[int, ...]
    left: int
    ends: bool
    is_awaited: bool


class NodeJoined(NamedTuple):
    """News: a node has come into the running job.

    Attributes:
        number: Its number.
        host: Where it is.
        ranks: Its ranks.
        world_size: How many ranks the job has given numbers to.
        again: Whether these ranks were there before.
    """

    number: int
    host: str
    ranks: range
    world_size: int
    again: bool


class Roster:
    """What the entries so far amount to.

    Args:
        terms: What all launchers were told.

    Attributes:
        members: The nodes by their numbers; those that are lost keep theirs until others take them. Never changed but
            replaced, so that threads may look at it while another applies an entry.
        came: The launchers that have had a node, also of those that are lost.
        has_begun: Whether ranks have been started, and are not to start again.
        round: How often all ranks have been started again; -1 before the first start.
        round_end: Why all are about to be started again, if they are.
        store: The port at which node 0 serves the store of the ranks; "" if it does not.
        min_ranks: With how many ranks the job goes on.
        restarts: How many ranks were started again.
        lives: How often each rank was started before, or was about to be.
        refused: Launchers that were turned away, with the exit code and the reason.
        verdict: How the job has ended, once it has.
        is_killed: Whether a second signal to a launcher has asked that all ranks be killed.
        news: What the job's users may want to know, until it is taken from here.
    """

    #: Whether a node that comes or goes has all ranks start again.
    restarts_all = False

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.members: dict[int, Member] = {}
        self.came: set[str] = set()
        self.has_begun = self.is_killed = False
        self.round = -1
        self.round_end: Verdict | None = None
        self.store = ""
        self.min_ranks = terms.min_ranks or 1
        self.restarts = 0
        self.lives: Counter[int] = Counter()
        self.refused: dict[str, tuple[int, str]] = {}
        self.verdict: Verdict | None = None
        self.news: list[NodeLost | NodeJoined] = []

    def apply(self, entry: Entry) -> bool:
        """Take the next entry of the log; return whether it has changed anything."""
        kind, author, *rest = entry
        changed: bool = getattr(self, f"_{kind}")(author, *rest)
        return changed

    # ------------------------------------------------------------------ what it says

    def of(self, launcher: str) -> Member | None:
        """Return the node that a launcher has, or had when it was lost; None if it has none."""
        return next((member for member in self.members.values() if member.launcher == launcher), None)

    def living(self) -> list[Member]:
        """Return the nodes that are there."""
        return [member for member in self.members.values() if not member.is_lost]

    @property
    def head(self) -> Member | None:
        """The node whose launcher decides."""
        return min(self.living(), key=_number, default=None)

    def before(self, launcher: str) -> list[Member]:
        """Return the nodes that are there before that of a launcher, the head first; all, if it has none."""
        mine = self.of(launcher)
        there = [member for member in self.living() if mine is None or member.number < mine.number]
        return sorted(there, key=_number)

    @property
    def world_size(self) -> int:
        """How many ranks have numbers, whether or not they are there."""
        return sum(member.size for member in self.members.values())

    @property
    def node_count(self) -> int:
        """How many nodes have numbers, or would have if none were left out."""
        return max(self.members, default=-1) + 1

    def place_of(self, member: Member) -> int:
        """Return which of those a node is."""
        return member.number

    @property
    def left(self) -> int:
        """How many ranks are there or have ended well."""
        return sum(member.size - len(member.given_up) for member in self.members.values())

    @property
    def is_finishing(self) -> bool:
        """Whether some rank has ended well."""
        return any(member.finished for member in self.members.values())

    @property
    def is_ready(self) -> bool:
        """Whether nothing is left of the round before."""
        return True

    def awaits(self, launcher: str) -> bool:
        """Tell whether a launcher has not yet said that nothing is left of its part of the round before."""
        return False

    @property
    def is_complete(self) -> bool:
        """Whether a round may begin without waiting for more nodes."""
        return len(self.members) >= self.terms.most

    @property
    def has_spares(self) -> bool:
        """Whether a launcher that finds all places taken may wait for one."""
        return self.has_begun

    @property
    def is_short(self) -> bool:
        """Whether nodes are missing that must come back."""
        return self.has_begun and len(self.living()) < self.terms.least_later

    def is_enough(self) -> bool:
        """Tell whether the job can go on with the ranks that are left: as long as nodes are awaited, with any."""
        return self.left >= (1 if self.is_short else self.min_ranks)

    # ------------------------------------------------------------------ entries: nodes

    def _enrol(self, author: str, number: int, launcher: str, host: str, size: int) -> bool:
        """Have a node in the job: the head itself first, and others by its word."""
        before = self.members.get(number)
        if self.verdict is not None or not self._is_head(author, launcher) or launcher in self.came:
            return False
        if before is not None and not (before.is_lost and before.size == size):
            return False
        if self.has_begun and self.is_finishing:
            return False
        member = Member(number, launcher, host, size, self.world_size if before is None else before.first_rank)
        self.members = {**self.members, number: member}
        self.came.add(launcher)
        if self.has_begun:
            self._welcome(member, before is not None)
        return True

    def _welcome(self, member: Member, is_back: bool) -> None:
        """Have a node in the running job."""
        self.lives.update(member.ranks if is_back else ())
        self.news.append(NodeJoined(member.number, member.host, member.ranks, self.world_size, is_back))

    def _begin(self, author: str, store: str) -> bool:
        """Have the job begin with the nodes that are there, whose ranks follow the order of their numbers."""
        if self.has_begun or not self._is_head(author) or self.verdict is not None:
            return False
        self.members = dict(sorted(self.members.items()))
        first_rank = 0
        for member in self.members.values():
            member.first_rank = first_rank
            first_rank += member.size
        self.has_begun, self.store = True, store
        self.round += 1
        if self.terms.min_ranks is None and self.terms.least < self.terms.most:
            self.min_ranks = sum(sorted(member.size for member in self.members.values())[: self.terms.least])
        return True

    def _lost(self, author: str, launcher: str, text: str) -> bool:
        """Go on without a node: by the word of the head, of one that would be the head, or by its own as it leaves."""
        member = self._losable(author, launcher)
        if member is None:
            return False
        if not self.has_begun:
            self._remove(member)
            return True
        ranks = tuple(rank for rank in member.ranks if rank not in member.finished | member.given_up)
        member.is_lost = True
        member.given_up.update(ranks)
        ends = self.verdict is None and not self.is_enough()
        self.news.append(NodeLost(member.number, member.host, text, ranks, self.left, ends, self.is_short))
        if ends:
            text = f"{text}; {few_left(self.left)}, which ends the job"
            self.verdict = Verdict(False, member.number, member.host, ExitCode.NODE_LOST, text, lost=True)
        self._end_if_done()
        return True

    def _remove(self, member: Member) -> None:
        self.members = {number: each for number, each in self.members.items() if each is not member}

    def _losable(self, author: str, launcher: str) -> Member | None:
        """Return the node that a launcher has, if the author of an entry may say that it is lost."""
        member = self._alive(launcher)
        is_one_before = member in self.before(author) and (self._alive(author) is not None or author not in self.came)
        return member if author == launcher or self._is_head(author) or is_one_before else None

    def _refuse(self, author: str, launcher: str, code: int, text: str) -> bool:
        """Turn a launcher away."""
        if not self._is_head(author):
            return False
        self.refused[launcher] = code, text
        return True

    def _done(self, author: str) -> bool:
        """Note that the ranks of a node have all ended."""
        member = self._alive(author)
        if member is None:
            return False
        member.is_done = True
        self._end_if_done()
        return True

    # ------------------------------------------------------------------ entries: ranks

    def _restart(self, author: str, rank: int) -> bool:
        """Take one of the restarts."""
        if self._alive(author) is None or self.restarts >= self.terms.max_restarts:
            return False
        self.restarts += 1
        self.lives[rank] += 1
        return True

    def _give_up(self, author: str, rank: int) -> bool:
        """Note that a rank has failed and is not started again."""
        member = self._alive(author)
        if member is None:
            return False
        member.given_up.add(rank)
        return True

    def _finish(self, author: str, rank: int) -> bool:
        """Note that a rank has ended well."""
        member = self._alive(author)
        if member is None:
            return False
        member.finished.add(rank)
        return True

    # ------------------------------------------------------------------ entries: the end

    def _fail(self, author: str, verdict: dict[str, Any]) -> bool:
        """Note that a rank, or a launcher, has failed in a way that ends the round: here that is the job."""
        return self._give(author, verdict)

    def _give(self, author: str, verdict: dict[str, Any]) -> bool:
        """End the job."""
        if self.verdict is not None or self._alive(author) is None:
            return False
        self.verdict = Verdict(**verdict)
        return True

    def _kill(self, author: str) -> bool:
        """Have all ranks killed."""
        self.is_killed = self.is_killed or self._alive(author) is not None
        return self.is_killed

    # ------------------------------------------------------------------ small tools

    def _is_head(self, author: str, launcher: str | None = None) -> bool:
        """Tell whether a launcher decides; where there is no head so far it does so for itself."""
        head = self.head
        return author == (launcher if head is None else head.launcher)

    def _alive(self, launcher: str) -> Member | None:
        member = self.of(launcher)
        return None if member is None or member.is_lost else member

    def _end_if_done(self) -> None:
        """End the job if nobody has anything to do: it has succeeded if enough ranks are left."""
        if self.verdict is not None or not all(member.is_done for member in self.living()):
            return
        first = self.head or self.members[min(self.members)]
        if self.is_enough():
            self.verdict = Verdict(True, first.number, first.host, 0, "")
        else:  # as nodes that were missing came back, but not all of their ranks were missing
            text = f"{few_left(self.left)}, and there must be {self.min_ranks}"
            self.verdict = Verdict(False, first.number, first.host, ExitCode.NODE_LOST, text)


def _number(member: Member) -> int:
    return member.number


def few_left(rest: int) -> str:
    """Say that too few ranks are left."""
    return f"only {rest} {'rank is' if rest == 1 else 'ranks are'} left" if rest else "no rank is left"
