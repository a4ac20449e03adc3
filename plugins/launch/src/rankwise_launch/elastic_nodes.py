"""The launchers of an elastic job of several nodes: they come, go and come back while the job runs.

Node 0 serves the store in which they meet. There each launcher says again and again that it is there, and all write one
log (`job_log.py`). Node 0 reads the words and writes who is in and who is lost (`registrar.py`); every launcher follows
the log.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import inf
from time import monotonic, sleep
from types import TracebackType
from typing import TYPE_CHECKING

from rankwise.backends import start_thread
from rankwise.errors import DistError, DistTimeoutError
from rankwise_launch.config import UNNUMBERED, ExitCode, LaunchConfig, LaunchError
from rankwise_launch.elastic_verdicts import ElasticVerdicts
from rankwise_launch.job_log import JobLog
from rankwise_launch.last_word import command
from rankwise_launch.nodes import Nodes, Place, difference
from rankwise_launch.presence import Loss
from rankwise_launch.registrar import Card, Patience, Registrar
from rankwise_launch.roster import Member, Roster, Terms
from rankwise_launch.tally import Tally
from rankwise_launch.words import KILLED, LEFT, Voice, Watch, word_of

if TYPE_CHECKING:
    from rankwise_stores import TCPStore

__all__ = ["ElasticNodes", "terms_of"]

#: How often each launcher says that it is there, but not more of them than so many a second; and how often at least in
#: the time that it may be silent.
_EVERY_S, _NODES_A_SECOND, _WORDS = 0.5, 500, 5
#: How many intervals a look may count for: one that took longer was suspended itself, and says nothing of the others.
_LATE = 2
#: How long the launcher that serves the store waits for the others to have read the last entry, and how often it looks.
_FAREWELL_S, _GLANCE_S = 3.0, 0.02
#: How much longer than node 0 a launcher waits, which says what was missing.
_LEEWAY_S = 5.0
#: What node 0 says of itself, and what ends a job whose launchers were started differently: as for other jobs.
_CLAIM, _JOINED = "0/node/0", "0/joined"


def terms_of(config: LaunchConfig) -> Terms:
    """Return what all launchers of a job were told."""
    return Terms(config.min_nodes, config.nnodes, config.max_restarts, config.min_ranks)


class ElasticNodes(Nodes):
    """This launcher's connection to those of the other nodes."""

    def __init__(self, config: LaunchConfig) -> None:
        self._id = os.urandom(8).hex()
        #: What has become of node 0, once it is gone.
        self._loss: Loss | None = None
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        super().__init__(config)
        self._every_s = max(min(_EVERY_S, self._silence_s / _WORDS), self._config.nnodes / _NODES_A_SECOND)
        self._silence_s = max(self._silence_s, _WORDS * self._every_s)
        self._log = JobLog(self._id, terms_of(config), self.store)
        if self._config.node_rank != 0:
            try:
                self._enrol()
            except BaseException:
                self._leave()
                raise

    def _take_a_number(self) -> tuple[TCPStore, int]:
        """Open the store as node 0, if the address is this machine's and nobody is there; else node 0 has a number."""
        with suppress(DistError, OSError, ValueError):
            return self._open(is_master=True), 0
        return self._open(), UNNUMBERED

    def _lost(self) -> Loss | None:
        return self._loss

    # ------------------------------------------------------------------ coming

    def _enrol(self) -> None:
        """Be given a number by node 0, in a job that may be running.

        Raises:
            LaunchError: Node 0 refuses this launcher, or is gone.
        """
        config = self._config
        try:
            self._compare()
            Voice(self.store, self._id).say()
            self._start(self._speak, "rankwise presence")
            self._start(self._follow, "rankwise log")
            card = Card(self._id, socket.gethostname(), config.nproc_per_node, config.node_rank)
            number, mine = 0, json.dumps(card).encode()
            while self.store.compare_set(_card(number), b"", mine) != mine:
                number += 1
        except LaunchError:
            raise
        except DistError as error:
            raise self._gone(error) from error
        until = monotonic() + config.join_timeout_s + _LEEWAY_S
        found: Member | LaunchError | None = self._log.wait_for(self._answer, until, self._lost)
        if found is None:
            lost = self._loss or Loss(0, "its launcher does not answer")
            raise LaunchError(ExitCode.NODE_LOST, self._tell(lost))
        if isinstance(found, LaunchError):
            raise found
        self._config = replace(config, node_rank=found.number)

    def _answer(self, roster: Roster) -> Member | LaunchError | None:
        refused = roster.refused.get(self._id)
        if refused is not None:
            return LaunchError(ExitCode(refused[0]), refused[1])
        return roster.of(self._id) or _failure(roster)

    def _compare(self) -> None:
        """See that node 0 was started as this launcher; else have all that have not begun end."""
        claim = self.store.get(_CLAIM, self._config.join_timeout_s)
        if text := difference([claim, json.dumps(self._claim_of()).encode()]):
            self._decide(_JOINED, ExitCode.USAGE, text)
            raise LaunchError(ExitCode.USAGE, text)

    def join(self, attempt: int, store_port: int) -> Place:
        """Wait until the job has begun; return where the ranks of this node are.

        Raises:
            LaunchError: It cannot begin.
        """
        if self._config.node_rank == 0:
            self._open_register(store_port)
        found: Place | LaunchError | None = self._log.wait_for(self._place, inf, self._has_no_place)
        if found is None:
            raise self._why_no_place()
        if isinstance(found, LaunchError):
            raise found
        if self._config.node_rank != 0:
            self._log.take_news()  # of what was before
        return found

    def _place(self, roster: Roster) -> Place | LaunchError | None:
        member = roster.of(self._id)
        if member is None or member.is_lost or not roster.has_begun:
            return _failure(roster)
        return Place(member.first_rank, roster.world_size, roster.store_port, roster.node_count)

    def _has_no_place(self) -> bool:
        if self._config.node_rank == 0 and self.store.check([_JOINED]):
            return True
        member = self._log.roster.of(self._id)
        return self._loss is not None or member is None or member.is_lost

    def _why_no_place(self) -> LaunchError:
        if self._config.node_rank == 0:
            code, text = json.loads(self.store.get(_JOINED))
            return LaunchError(ExitCode(code), str(text))
        lost = self._loss or Loss(self._config.node_rank, "the others have given it up before the job began")
        return LaunchError(ExitCode.NODE_LOST, self._tell(lost))

    def _gone(self, error: DistError) -> LaunchError:
        return LaunchError(ExitCode.NODE_LOST, self._tell(Loss(0, f"its launcher is gone: {error}")))

    # ------------------------------------------------------------------ what threads do

    def _start(self, function: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=function, name=name, daemon=True)
        self._threads.append(thread)
        start_thread(thread)

    def _speak(self) -> None:
        """Say that this launcher is there, and notice that node 0 does not answer."""
        voice, node_0, looked_at = Voice(self.store.view(self._every_s), self._id), Watch(), monotonic()
        while not self._closing.wait(self._every_s):
            try:
                word = voice.reply()
            except (DistError, OSError) as error:
                self._lose_0(f"its launcher is gone: {error}")
                return
            now = monotonic()
            if text := node_0.why_gone(word, min(now - looked_at, _LATE * self._every_s), self._silence_s):
                self._lose_0(text)
                return
            looked_at = now

    def _follow(self) -> None:
        """Read what others write into the log."""
        while not self._closing.is_set():
            try:
                self._log.read()
            except (DistError, OSError) as error:
                self._lose_0(f"its launcher is gone: {error}")
                return

    def _lose_0(self, text: str) -> None:
        """Without node 0 nobody can decide anything: have this launcher's part of the job end."""
        if not self._closing.is_set():
            self._loss = self._loss or Loss(0, text)
            self.store.close()  # so that nothing waits for an answer
            self._log.wake()

    # ------------------------------------------------------------------ node 0

    def _open_register(self, store_port: int) -> None:
        """Begin to take in other launchers.

        Raises:
            LaunchError: One of them was started differently.
        """
        config = self._config
        self.store.set(_CLAIM, json.dumps(self._claim_of()))
        self._log.write("enrol", 0, self._id, socket.gethostname(), config.nproc_per_node)
        patience = Patience(self._silence_s, config.join_timeout_s, config.last_call_s)
        self._registrar = Registrar(self._log.roster, self._id, patience, self._where, store_port)
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
            self._registrar.come(Card(*json.loads(self.store.get(_card(number), self._every_s))))
            return True
        return False

    def _look(self, passed_s: float) -> None:
        launchers = self._registrar.watched()
        said = self.store.multi_get([word_of(launcher) for launcher in launchers]) if launchers else []
        words = dict(zip(launchers, said, strict=True))
        for kind, _, *rest in self._registrar.look(words, passed_s, self._log.is_handled):
            self._log.write(kind, *rest)

    # ------------------------------------------------------------------ going

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._config.node_rank == 0 and (error is None or isinstance(error, Exception)):
            with suppress(DistError, OSError):
                self._await_others()
        self._leave()

    def _leave(self) -> None:
        """Say that this launcher comes to its end."""
        self._closing.set()
        with suppress(DistError, OSError):
            if self._config.node_rank != 0 and self._loss is None:
                self.store.set(word_of(self._id), LEFT)
        self.store.close()
        for thread in self._threads:
            thread.join()

    def _await_others(self) -> None:
        """On node 0, wait until all others have read how the job ends, and left."""
        end = monotonic() + _FAREWELL_S
        while monotonic() < end:
            with self._log.changed:
                others = [each.launcher for each in self._log.roster.living() if each.launcher != self._id]
            words = self.store.multi_get([word_of(launcher) for launcher in others]) if others else []
            if all(word in (LEFT, KILLED) for word in words):
                return
            sleep(_GLANCE_S)

    # ------------------------------------------------------------------ what an attempt needs

    def verdicts(self, attempt: int) -> ElasticVerdicts:
        """Return what tells how the job ends."""
        return ElasticVerdicts(self._log, self._config.node_rank, self._lost)

    def tally(self) -> Tally:
        """Return what counts the failures on all nodes."""
        return Tally(self._log)

    def last_word(self) -> list[str]:
        """Return the command that tells the others that this launcher was killed; nothing on node 0."""
        config = self._config
        if config.node_rank == 0:
            return []
        return command(config.master_addr, config.master_port_of_nodes, word_of(self._id))


def _card(number: int) -> str:
    return f"card/{number}"


def _failure(roster: Roster) -> LaunchError | None:
    """Return why no job can begin."""
    return None if roster.verdict is None else LaunchError(ExitCode.NODE_MISSING, roster.verdict.text)
