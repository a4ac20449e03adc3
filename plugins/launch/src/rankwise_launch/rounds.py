"""Which nodes a job has that starts all ranks again after a failure: rounds, between which nodes come and go.

A round begins with the nodes that are there, whose ranks get new numbers. It ends for all launchers with the same
entry: a rank has failed, a node is lost or leaves, or another has come. Then each launcher ends its ranks, and says
that it is ready; when all are, the next round begins. Without `MIN:MAX` the nodes are the same in all rounds, and a
node that is lost after the first beginning ends the job.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rankwise_launch.config import ExitCode
from rankwise_launch.roster import Member, NodeLost, Roster, Terms
from rankwise_launch.verdict import Verdict


class Rounds(Roster):
    """What the entries so far amount to.

    Args:
        terms: What all launchers were told.
    """

    restarts_all = True

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        #: The launchers that have no ranks left of the round before.
        self._ready: set[str] = set()
        #: How many nodes the round before had, without those that have left.
        self._nodes_before = terms.most

    @property
    def is_flexible(self) -> bool:
        """Whether nodes may come and go."""
        return self.terms.least < self.terms.most

    @property
    def is_ready(self) -> bool:
        """Whether all launchers have ended their ranks."""
        return not any(self.awaits(member.launcher) for member in self.members.values())

    def awaits(self, launcher: str) -> bool:
        """Tell whether a launcher has not yet said that it has ended its ranks."""
        return not self.has_begun and launcher not in self._ready and self._alive(launcher) is not None

    @property
    def is_complete(self) -> bool:
        """Whether as many nodes are there as may be, or as the round before had."""
        return len(self.members) >= self._nodes_before

    @property
    def has_spares(self) -> bool:
        """Whether a launcher that finds all places taken may wait for one."""
        return self.round >= 0 and self.is_flexible

    @property
    def node_count(self) -> int:
        """How many nodes there are: the numbers of those that are lost are nobody's."""
        return len(self.members)

    def place_of(self, member: Member) -> int:
        """Return which of those a node is."""
        return sum(number < member.number for number in self.members)

    # ------------------------------------------------------------------ entries

    def _enrol(self, author: str, number: int, launcher: str, host: str, size: int) -> bool:
        """Have a node in the next round."""
        if not super()._enrol(author, number, launcher, host, size):
            return False
        self._ready.add(launcher)
        return True

    def _welcome(self, member: Member, is_back: bool) -> None:
        """Have all ranks start again with those of a node that has come."""
        ranks = f"{member.size} rank{'s' * (member.size != 1)}"
        self._end_round(Verdict(False, member.number, member.host, 0, f"it has {ranks}"), counts=False)

    def _ready_again(self, author: str) -> bool:
        """Note that a launcher has ended its ranks."""
        if self.has_begun or self._alive(author) is None:
            return False
        self._ready.add(author)
        return True

    def _begin(self, author: str, store: str) -> bool:
        """Have a round begin with the nodes that are there, whose ranks follow the order of their numbers."""
        if len(self.members) < self.terms.least or not super()._begin(author, store):
            return False
        self.round_end, self._nodes_before = None, len(self.members)
        return True

    def _lost(self, author: str, launcher: str, text: str) -> bool:
        """Go on without a node: by the word of node 0, or its own as it leaves, which is no failure."""
        member = self._losable(author, launcher)
        if member is None:
            return False
        if self.verdict is not None:
            member.is_lost = True
            return True
        self._remove(member)
        if self.round < 0:
            return True
        leaves = author == launcher
        self._nodes_before -= leaves
        code = 0 if leaves and self.is_flexible else ExitCode.NODE_LOST
        verdict = Verdict(False, member.number, member.host, code, text, lost=True)
        if not self.is_flexible:
            self.verdict = verdict
        elif self.has_begun:
            self._end_round(verdict, counts=not leaves)
        else:  # of which no end of a round tells
            self.news.append(NodeLost(member.number, member.host, text, (), self.world_size, False, False))
        return True

    def _done(self, author: str) -> bool:
        """Note that the ranks of a node have all ended: well, unless the round has ended before."""
        return self.has_begun and super()._done(author)

    def _finish(self, author: str, rank: int) -> bool:
        """Note that a rank has ended well."""
        return self.has_begun and super()._finish(author, rank)

    def _fail(self, author: str, verdict: dict[str, Any]) -> bool:
        """Note a failure: all ranks start again, or the job ends if that was the last restart."""
        if self.verdict is not None or not self.has_begun or self._alive(author) is None:
            return False
        self._end_round(Verdict(**verdict))
        return True

    def _end_round(self, verdict: Verdict, counts: bool = True) -> None:
        """Have all ranks start again; or if that counts, and no restart is left, end the job."""
        if counts and self.restarts >= self.terms.max_restarts:
            self.verdict = verdict
            return
        self.restarts += counts
        self.has_begun, self.round_end = False, replace(verdict, again=True)
        self._ready.clear()
        for member in self.members.values():
            member.is_done = False
            member.finished.clear()
