"""The launchers of several nodes: they come, go and come back while the job runs.

They meet in a store, which node 0 serves or a server has (`entrance.py`). There each launcher says again and again that
it is there, and all write one log (`job_log.py`). One of them, the head, reads the words and writes who is in and who
is lost (`registrar.py`); every launcher follows the log. Where node 0 serves the store it is the head, and the job ends
with it; on a server the next takes its place.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic, sleep
from types import TracebackType

from rankwise.backends import start_thread
from rankwise.errors import DistError, DistNetworkError, DistTimeoutError
from rankwise_launch.config import ExitCode, LaunchConfig, LaunchError
from rankwise_launch.entrance import CLAIM, STORE_OF_RANKS, claim_of, difference, enter, place_of
from rankwise_launch.environment import Layout
from rankwise_launch.job_log import JobLog
from rankwise_launch.last_word import command
from rankwise_launch.registrar import Card, Patience, Registrar
from rankwise_launch.roster import Member, NodeLost, Roster, Terms
from rankwise_launch.rounds import Rounds
from rankwise_launch.tally import Tally
from rankwise_launch.verdicts import Verdicts
from rankwise_launch.words import KILLED, LEFT, Loss, Voice, Watch, word_of
from rankwise_network import outage

#: How long node 0 may take to answer.
_ANSWER_S = 5.0
#: How often each launcher says that it is there, but not more of them than so many a second; and how often at least in
#: the time that it may be silent.
_EVERY_S, _NODES_A_SECOND, _WORDS = 0.5, 500, 5
#: How many intervals a look may count for: one that took longer was suspended itself, and says nothing of the others.
_LATE = 2
#: How long none may be silent, and what sets that.
_SILENCE_S, _LIMIT = 5.0, "RANKWISE_HEARTBEAT_LIMIT_S"
#: How long the launcher that serves the store waits for the others to have read the last entry, and how often it looks.
_FAREWELL_S, _GLANCE_S = 3.0, 0.02
#: How many entries are read at once while nodes come, and how many times all launchers together look for them.
_RUN, _READS_A_SECOND = 16, 2000
#: How much longer than node 0 a launcher waits, which says what was missing.
_LEEWAY_S = 5.0
#: Where a launcher says that it was started otherwise than node 0.
_DIFFERENCE = "difference"


def terms_of(config: LaunchConfig) -> Terms:
    """Return what all launchers of a job were told."""
    return Terms(config.min_nodes, config.nnodes, config.max_restarts, config.min_ranks)


class Nodes:
    """This launcher's connection to those of the other nodes."""

    def __init__(self, config: LaunchConfig) -> None:
        self._id = os.urandom(8).hex()
        #: What has become of node 0, once it is gone.
        self._loss: Loss | None = None
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._where, self._silence_s = place_of(config), silence_s()
        self._store, number = enter(config)
        self._is_on_server = bool(config.meeting)
        self._store.set_timeout(min(_ANSWER_S, self._silence_s))
        self._config = replace(config, node_rank=number)
        self._every_s = max(min(_EVERY_S, self._silence_s / _WORDS), config.nnodes / _NODES_A_SECOND)
        self._silence_s = max(self._silence_s, _WORDS * self._every_s)
        roster = (Roster if config.elastic else Rounds)(terms_of(config))
        #: What the store raises while it is out of reach for a while; node 0's is gone for good when its connection is.
        self._passing = (DistTimeoutError, *[DistNetworkError] * self._is_on_server)
        self._log = JobLog(self._id, roster, self._store, self._passing)
        patience = Patience(self._silence_s, config.join_timeout_s, config.last_call_s)
        #: What this launcher decides, if it is the head.
        self._registrar = Registrar(roster, self._id, patience, self._where)
        #: Whether this launcher has seen a round begin.
        self._has_joined = False
        if not self._config.serves:
            try:
                self._enrol()
            except BaseException:
                self._leave()
                raise

    @property
    def config(self) -> LaunchConfig:
        """The configuration, in which this node has its number."""
        return self._config

    def __enter__(self) -> Nodes:
        return self

    # ------------------------------------------------------------------ coming

    def _enrol(self) -> None:
        """Be given a number by the head, in a job that may be running.

        Raises:
            LaunchError: The head refuses this launcher, or node 0 is gone.
        """
        config = self._config
        try:
            self._compare()
            Voice(self._store, self._id).say()
            self._start(self._speak, "rankwise presence")
            self._start(self._follow, "rankwise log")
            if self._is_on_server:
                self._start(self._register, "rankwise registrar")
            card = Card(self._id, socket.gethostname(), config.nproc_per_node, config.node_rank)
            number, mine = 0, json.dumps(card).encode()
            while self._store.compare_set(_card(number), b"", mine) != mine:
                number += 1
        except LaunchError:
            raise
        except DistError as error:
            raise self._gone(error) from error
        until = monotonic() + config.join_timeout_s + _LEEWAY_S
        found: Member | LaunchError | None = self._log.wait_for(self._answer, until, self._lost)
        if found is None:
            raise self._no_place(self._loss or Loss(0, "its launcher does not answer"))
        if isinstance(found, LaunchError):
            raise found
        self._config = replace(config, node_rank=found.number)

    def _answer(self, roster: Roster) -> Member | LaunchError | None:
        refused = roster.refused.get(self._id)
        if refused is not None:
            return LaunchError(*refused)
        return roster.of(self._id) or _failure(roster)

    def _compare(self) -> None:
        """See that node 0 was started as this launcher; else have all end, if they have not begun."""
        mine = claim_of(self._config)
        if self._is_on_server:
            claim = self._store.compare_set(CLAIM, b"", mine)
        else:
            claim = self._store.get(CLAIM, self._config.join_timeout_s)
        if text := difference([claim, mine]):
            self._store.set(_DIFFERENCE, text)
            raise LaunchError(ExitCode.USAGE, text)

    def join(self, layout: Layout) -> Layout:
        """Wait until all ranks are started, perhaps again; return where those of this node are.

        Args:
            layout: Where they would be without other nodes, and where this node serves the store of the ranks.

        Raises:
            LaunchError: It cannot begin.
        """
        if self._config.serves:
            self._serve(layout.store)
        found: Layout | LaunchError | None = None
        while found is None and not self._has_no_place():
            if self._log.roster.awaits(self._id):  # perhaps again: a round may end before this launcher sees it begin
                self._log.write("ready_again")
            found = self._log.wait_for(partial(self._place, layout), inf, self._is_awaited)
        if found is None:
            gone = "the others have given it up, and go on without it"
            raise self._no_place(self._loss or Loss(self._config.node_rank, gone))
        if isinstance(found, LaunchError):
            raise found
        if not self._config.serves and not self._has_joined:
            self._log.take_news()  # of what was before
        self._has_joined = True
        return found

    def _place(self, layout: Layout, roster: Roster) -> Layout | LaunchError | None:
        member = roster.of(self._id)
        if member is None or member.is_lost or not roster.has_begun:
            return _failure(roster)
        if self._is_on_server:
            layout = self._on_server(layout, roster)
        return replace(
            layout,
            first_rank=member.first_rank,
            world_size=roster.world_size,
            attempt=roster.round,
            store=roster.store or layout.store,
            nodes=roster.node_count,
            node=roster.place_of(member),
        )

    def _on_server(self, layout: Layout, roster: Roster) -> Layout:
        """Have the ranks of each round meet in a place of their own; programs may want to know where rank 0 is."""
        from rankwise_stores.serving import within

        first = roster.members[min(roster.members)]
        store = within(self._config.meeting, f"ranks-{roster.round}")
        return replace(layout, master_addr=first.host, store=store)

    def _has_no_place(self) -> bool:
        member = self._log.roster.of(self._id)
        return self._loss is not None or member is None or member.is_lost

    def _is_awaited(self) -> bool:
        return self._has_no_place() or self._log.roster.awaits(self._id)

    def _gone(self, error: DistError) -> LaunchError:
        return self._no_place(Loss(0, f"its launcher is gone: {error}"))

    def _no_place(self, lost: Loss) -> LaunchError:
        return LaunchError(ExitCode.NODE_LOST, f"node {lost.node_rank} is lost: {lost.text} ({self._where})")

    # ------------------------------------------------------------------ what threads do

    def _start(self, function: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=function, name=name, daemon=True)
        self._threads.append(thread)
        start_thread(thread)

    def _speak(self) -> None:
        """Say that this launcher is there, and notice that node 0 does not answer; a server may be away for a while."""
        voice = Voice(self._store.view(self._every_s), self._id, self._passing)
        node_0, looked_at = Watch(), monotonic()
        while not self._closing.wait(self._every_s):
            try:
                word = voice.reply()
            except (DistError, OSError) as error:
                self._lose_0(f"its launcher is gone: {error}")
                return
            now = monotonic()
            if self._is_on_server:
                continue
            if text := node_0.why_gone(word, min(now - looked_at, _LATE * self._every_s), self._silence_s):
                self._lose_0(text)
                return
            looked_at = now

    def _follow(self) -> None:
        """Read what others write into the log."""
        while not self._closing.is_set():
            try:
                if not (self._is_crowded() and self._log.read(_GLANCE_S, _RUN)):
                    self._log.read()
            except (DistError, OSError) as error:
                self._lose_0(f"its launcher is gone: {error}")
                return

    def _is_crowded(self) -> bool:
        """Tell whether many nodes are about to come, so that node 0 would be asked for each by each of the others."""
        if self._log.roster.round >= 0 or self._config.nnodes < _RUN:
            return False
        self._closing.wait(self._config.nnodes / _READS_A_SECOND)
        return True

    def _lose_0(self, text: str) -> None:
        """Without the store nobody can decide anything: have this launcher's part of the job end."""
        if not self._closing.is_set():
            lost = Loss(self._config.node_rank, f"it does not reach the others: {text}")
            self._loss = self._loss or (lost if self._is_on_server else Loss(0, text))
            self._store.close()  # so that nothing waits for an answer
            self._log.wake()

    # ------------------------------------------------------------------ the head

    def _serve(self, store: str) -> None:
        """On node 0, have the ranks meet in this store from now on; take in other launchers."""
        self._registrar.store = store
        with suppress(DistError):  # which only those ask for that look at a running job
            self._store.set(STORE_OF_RANKS, store)
        if not self._threads:
            self._open_register()

    def _open_register(self) -> None:
        """Begin to take in other launchers."""
        config = self._config
        self._store.set(CLAIM, claim_of(config))
        self._log.write("enrol", 0, self._id, socket.gethostname(), config.nproc_per_node)
        self._start(self._register, "rankwise registrar")
        self._start(self._follow, "rankwise log")

    def _register(self) -> None:
        """Hear who comes and who is there, and write what follows from that."""
        came, looked_at = 0, monotonic()
        while not self._closing.is_set():
            try:
                came += self._hear_of_newcomer(came)
                now = monotonic()
                self._look(min(now - looked_at, _LATE * self._every_s))
                looked_at = now
            except (DistError, OSError):  # this launcher closes its own store, or is too busy to answer itself
                self._closing.wait(self._every_s)

    def _hear_of_newcomer(self, number: int) -> bool:
        """Wait a little for the next card; return whether there was one."""
        with suppress(DistTimeoutError):
            self._registrar.come(Card(*json.loads(self._store.get(_card(number), self._every_s))))
            return True
        return False

    def _look(self, passed_s: float) -> None:
        registrar = self._registrar
        if self._log.roster.round < 0 and self._store.check([_DIFFERENCE]):
            registrar.difference = self._store.get(_DIFFERENCE).decode()
        launchers = registrar.watched()
        said = self._store.multi_get([word_of(launcher) for launcher in launchers]) if launchers else []
        words = dict(zip(launchers, said, strict=True))
        for kind, _, *rest in registrar.look(words, passed_s, self._log.is_handled):
            self._log.write(kind, *rest)

    # ------------------------------------------------------------------ going

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Nobody waits for a farewell after Ctrl-C.
        if self._config.serves and (error is None or isinstance(error, Exception)):
            with suppress(DistError, OSError):
                self._await_others()
        self._leave()

    def _leave(self) -> None:
        """Say that this launcher comes to its end."""
        self._closing.set()
        with suppress(DistError, OSError):
            if not self._config.serves and self._loss is None:
                self._store.set(word_of(self._id), LEFT)
        self._store.close()
        for thread in self._threads:
            thread.join()

    def _await_others(self) -> None:
        """On node 0, wait until all others have read how the job ends, and left."""
        end = monotonic() + _FAREWELL_S
        while monotonic() < end:
            with self._log.changed:
                others = [each.launcher for each in self._log.roster.living() if each.launcher != self._id]
            words = self._store.multi_get([word_of(launcher) for launcher in others]) if others else []
            if all(word in (LEFT, KILLED) for word in words):
                return
            sleep(_GLANCE_S)

    # ------------------------------------------------------------------ what an attempt needs

    def _lost(self) -> Loss | None:
        return self._loss

    def verdicts(self) -> Verdicts:
        """Return what tells how an attempt ends."""
        return Verdicts(self._log, self._config.node_rank, self._lost)

    def tally(self) -> Tally:
        """Return what counts the failures on all nodes."""
        return Tally(self._log)

    def restarts_left(self) -> int | None:
        """Return how many restarts are left if all ranks are to be started again; else None."""
        with self._log.changed:
            roster = self._log.roster
            is_over = roster.verdict is not None or roster.round_end is None or self._loss is not None
            return None if is_over else roster.terms.max_restarts - roster.restarts

    def take_losses(self) -> list[NodeLost]:
        """Return which nodes were lost while no ranks ran."""
        return [news for news in self._log.take_news() if isinstance(news, NodeLost)]

    def last_word(self) -> list[str]:
        """Return the command that tells the others that this launcher was killed; nothing on node 0."""
        config, place = self._config, self._where
        if config.serves:
            return []
        if self._is_on_server:
            from rankwise_stores.serving import within

            place = within(config.meeting, "launchers")
        return command(place, word_of(self._id))


def silence_s() -> float:
    """Return how long nothing may be heard of a launcher: as long as of a rank on another host.

    Raises:
        LaunchError: What is set is no number.
    """
    try:
        return max(outage.setting(_LIMIT, _SILENCE_S), outage.limit_s())
    except ValueError as error:
        raise LaunchError(ExitCode.USAGE, str(error)) from None


def _card(number: int) -> str:
    return f"card/{number}"


def _failure(roster: Roster) -> LaunchError | None:
    """Return why no round can begin."""
    verdict = roster.verdict
    if verdict is None:
        return None
    return LaunchError(verdict.exit_code, verdict.told() if verdict.lost or verdict.signal else verdict.text)
