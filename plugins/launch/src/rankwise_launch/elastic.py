"""An attempt whose ranks outlive each other: one that fails is started again by itself, or the others go on without it.

`--elastic` has one rule for the end: the job has failed once so many ranks are lost that fewer than `--min-ranks` can
end well. A rank is lost when it has failed and is not started again.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any

from rankwise_launch.attempt import Attempt
from rankwise_launch.config import LaunchConfig, LaunchError
from rankwise_launch.dead import EVERY, Dead
from rankwise_launch.environment import Layout
from rankwise_launch.failures import Death, OutOfMemoryWatch
from rankwise_launch.outcome import Outcome
from rankwise_launch.output import Console
from rankwise_launch.roster import NodeJoined, NodeLost
from rankwise_launch.tally import Tally
from rankwise_launch.worker import Worker
from rankwise_network.secret import Secret

#: EX_TEMPFAIL: the exit code of a rank that leaves the job for good, as after a notice with `rankwise.elastic`. It is
#: no failure to be mended, nor the end of the job.
LEFT = 75

#: A rank that fails sooner after its start could not begin: its next start waits, twice as long each time.
_QUICK_S = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
#: What a rank leaves running gets SIGTERM, and SIGKILL after so long; its successor waits for its end, but no longer.
_LEFTOVER_S, _LONGEST_END_S = 0.5, 2.0
#: How often to look whether it has ended, and during a pause whether other ranks have ended well, on whichever node.
_LOOK_S, _GLANCE_S = 0.02, 0.5
#: How many ranks of a node are named.
_MOST_SHOWN = 16


def pause_s(quick_failures: int) -> float:
    """Return how long a rank waits that has failed so many times in a row soon after its start."""
    doublings = min(quick_failures - 1, 10)
    return min(_FIRST_PAUSE_S * 2**doublings, _LONGEST_PAUSE_S) if quick_failures else 0.0


class ElasticAttempt(Attempt):
    """Starts the ranks, and those that fail again, as often as the job may.

    Args:
        tally: The counts of the job.
        secret: The job's secret.
        config: The configuration.
        layout: Where the ranks are.
        console: Where failures are told.
        means: What else an attempt needs.
    """

    def __init__(
        self, tally: Tally, secret: Secret, config: LaunchConfig, layout: Layout, console: Console, *means: Any
    ) -> None:
        super().__init__(config, layout, console, *means)
        self._tally, self._secret = tally, secret
        #: The local ranks that are about to be started again, with what was told of their ends.
        self._pending: dict[int, Death] = {}
        #: How often local ranks were started again, and how often they have failed in a row soon after that.
        self._restarts: Counter[int] = Counter()
        self._lives_before = [tally.lives_before(layout.first_rank + each) for each in range(config.nproc_per_node)]
        self._quick: Counter[int] = Counter()
        self._deaths: list[Death] = []
        self._memory = OutOfMemoryWatch()

    def run(self, secret_fd: int) -> Outcome:
        """Run all ranks to their end, or until this node leaves."""
        outcome = super().run(secret_fd)
        if self._leaving:
            super()._leave()
        return outcome

    def _leave(self) -> None:
        """Wait with that until all ranks have ended: others may have their numbers then."""

    def _outcome(self) -> Outcome:
        outcome = super()._outcome()
        return replace(outcome, failed=outcome.failed if self._failure_seen else None, deaths=self._deaths)

    def _all_ended(self) -> bool:
        return not self._pending and super()._all_ended()

    def _start_no_more(self) -> None:
        super()._start_no_more()
        self._pending.clear()

    # ------------------------------------------------------------------ what happens

    def _note_success(self, worker: Worker) -> None:
        self._tally.finish(worker.rank)

    def _on_failure(self, worker: Worker) -> None:
        if self._interrupted is not None or self._elsewhere is not None:
            super()._on_failure(worker)  # the job is ending already
            return
        if self._failure_seen:
            return  # likewise, and the others have their time
        if worker.group_is_there():
            # What it has left running may hold what its successor needs.
            worker.send(signal.SIGTERM)
            self._loop.after(_LEFTOVER_S, partial(self._kill_leftovers, worker))
        local_rank = worker.local_rank
        self._quick[local_rank] = self._quick[local_rank] + 1 if worker.age_s() < _QUICK_S else 0
        end = f"{worker.describe_end()}, {worker.age_s():.1f} s after its start"
        self._decide(worker, end + self._remark_on_memory(worker))

    def _kill_leftovers(self, worker: Worker) -> None:
        if worker.group_is_there():
            worker.send(signal.SIGKILL)

    def _remark_on_memory(self, worker: Worker) -> str:
        if worker.exit_code != -signal.SIGKILL or not self._memory.struck():
            return ""
        self._memory = OutOfMemoryWatch()
        return " (the kernel has killed for lack of memory meanwhile)"

    def _decide(self, worker: Worker, how: str) -> None:
        """Have a rank that has failed started again, or go on without it, or end the job."""
        death, most = Death(worker.rank, how), self._config.max_restarts
        if worker.exit_code == LEFT:
            self._lose(worker, death, "it has left the job")
            return
        if self._tally.is_finishing():
            self._lose(worker, death, "other ranks have ended well")
            return
        left = self._tally.take_restart(worker.rank)
        if left is None:
            self._lose(worker, death, "no restart is left" if most else "--max-restarts is 0")
            return
        pause = pause_s(self._quick[worker.local_rank])
        when = f" in {pause:g} s" if pause else ""
        self._tell(death, f"is started again{when} ({left} of {most} restarts left)")
        self._tell_of_one_dead(worker, is_replaced=True)
        self._pending[worker.local_rank] = death
        self._loop.after(0.0, partial(self._replace, worker, time.monotonic() + pause))

    def _lose(self, worker: Worker, death: Death, why: str) -> None:
        """Go on without a rank, or end the job if it cannot."""
        rest, is_enough = self._tally.lose(worker.rank)
        if not is_enough:
            few = f"only {rest} {'is' if rest == 1 else 'are'} left" if rest else "none is left"
            within = f" in {self._config.grace_s:g} s" if rest and worker.exit_code == LEFT else ""
            self._tell(death, f"is not started again, as {why}; {few}, which ends the job{within}")
            super()._on_failure(worker)
            return
        self._tell(death, f"is not started again, as {why}; the others go on")
        self._deaths.append(death)
        self._tell_of_one_dead(worker, is_replaced=False)

    def _last_words_s(self, exit_code: int | None) -> float:
        """Return more if one has left: the others may have got the notice too, and be about to leave."""
        return self._config.grace_s if exit_code == LEFT else super()._last_words_s(exit_code)

    def _replace(self, worker: Worker, not_before: float = 0.0) -> None:
        """Start a rank again at some time, once nothing is left of its predecessor.

        As long as the system knows the predecessor's process, the group takes its successor for an impostor.
        """
        local_rank = worker.local_rank
        if local_rank not in self._pending:
            return  # the job is ending
        rest_s = not_before - time.monotonic()
        if rest_s > 0 and not self._tally.is_finishing():
            self._loop.after(min(rest_s, _GLANCE_S), partial(self._replace, worker, not_before))
            return
        if not worker.is_gone() and time.monotonic() < (worker.ended_at or 0.0) + _LONGEST_END_S:
            self._loop.after(_LOOK_S, partial(self._replace, worker))
            return
        death = self._pending.pop(local_rank)
        if self._tally.is_finishing():
            self._lose(worker, death, "other ranks have ended well meanwhile")
            return
        try:
            self._start_again(worker)
        except LaunchError as error:
            self._quick[local_rank] += 1
            self._decide(worker, str(error))
            return
        death.replaced = True
        self._deaths.append(death)

    def _start(self, local_rank: int, layout: Layout) -> Worker:
        lives = self._lives_before[local_rank] + self._restarts[local_rank]
        return super()._start(local_rank, replace(layout, attempt=lives, world_size=self._tally.world_size))

    def _start_again(self, worker: Worker) -> None:
        local_rank = worker.local_rank
        self._restarts[local_rank] += 1
        try:
            successor = self._start(local_rank, self._layout)
        except LaunchError:
            self._restarts[local_rank] -= 1
            raise
        if self._store is not None and self._preloaded is None:
            self._store.spare(successor.pid)
        self._workers.remove(worker)
        self._replaced = [each for each in (*self._replaced, worker) if each.streams or not each.is_gone()]

    # ------------------------------------------------------------------ other nodes

    def _on_verdict(self) -> None:
        verdicts = self._verdicts
        assert verdicts is not None
        for news in verdicts.take_news():
            if news.number != verdicts.node_rank:
                self._on_news(news)
        verdicts.note_handled()
        if verdicts.killed or self._elsewhere is None:
            super()._on_verdict()

    def _on_news(self, news: NodeLost | NodeJoined) -> None:
        node = f"node {news.number} ({news.host})"
        if isinstance(news, NodeJoined):
            self._console.resize(news.world_size)
            what = "is back, with" if news.again else f"has joined the job, which has {news.world_size} ranks now, with"
            self._console.say(f"rankwise: {node} {what} {_ranks(news.ranks)}")
        elif not news.ends:  # else the end tells of it
            rest = "the others go on"
            if news.is_awaited:
                rest += f", and end unless another node comes within {self._config.join_timeout_s:g} s"
            self._console.say(f"rankwise: {node} is lost: {news.text}; {_ranks(news.ranks)} went with it; {rest}")
            self._tell_of_node(news)

    def _tell_of_node(self, news: NodeLost) -> None:
        """Tell ranks that meet of those that were on a lost node."""
        if self._store is not None:
            for rank in news.ranks:
                cause = f"its node {news.number} is lost: {news.text}"
                self._store.tell_of_death(Dead(rank, cause, EVERY, self._tally.world_size))

    # ------------------------------------------------------------------ what is told

    def _tell(self, death: Death, fate: str) -> None:
        self._console.say(f"rankwise: rank {death.rank} failed: {death.how}; it {fate}")

    def _tell_of_one_dead(self, worker: Worker, is_replaced: bool) -> None:
        """Tell ranks that meet, unless the rank's successor can join them as the rank itself has not."""
        size = 0 if is_replaced else self._layout.world_size
        dead = Dead(worker.rank, f"its process {worker.describe_end(True)}", worker.pid, size)
        if self._store is not None:
            self._store.tell_of_death(dead)
        elif self._layout.store:  # the launcher of node 0 serves it, which knows of its own ranks alone
            from rankwise_launch.serving import tell_of_death

            tell_of_death(self._layout.master_addr, int(self._layout.store), self._secret, dead)


def _ranks(ranks: Collection[int]) -> str:
    """Name some ranks."""
    shown = ", ".join(map(str, sorted(ranks)[:_MOST_SHOWN])) + ", ..." * (len(ranks) > _MOST_SHOWN)
    return f"rank{'s' * (len(ranks) != 1)} {shown}" if ranks else "none of its ranks"
