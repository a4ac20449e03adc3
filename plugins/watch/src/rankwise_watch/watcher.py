"""The watcher of each rank: it sees who lives, and sees to it that all ranks raise the same error.

Its thread alone talks to the store about such things. A thread that asks it waits for so long and no longer, so that a
store that hangs cannot keep an operation beyond its deadline.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from rankwise.errors import DistError, DistNetworkError, DistTimeoutError, PeerDiedError
from rankwise.observing import MEETING, PrefixStore, Store, innermost
from rankwise_network import outage
from rankwise_watch.background import Background, guarded
from rankwise_watch.heartbeat import Beat, Beats, Lateness
from rankwise_watch.host_beats import FEWEST, HostBeats
from rankwise_watch.judge import Judge
from rankwise_watch.liveness import Processes
from rankwise_watch.meeting import WatchedMeeting
from rankwise_watch.report import Reporter
from rankwise_watch.suspicion import BEATS, silence
from rankwise_watch.verdict import Log, Verdict

if TYPE_CHECKING:
    from rankwise.observing import Communicator, Context, ProcessGroup, World

#: How long an operation that is late waits for what the others say.
_ASK_S = 0.03
#: And one that has failed, which has no deadline to keep: on a busy machine a verdict takes a few hundred milliseconds.
_ASK_FAILED_S = 0.5
#: A connection ends a little before its process does.
_END_S = 0.1
#: How long a collective may still take that was running when a member died: by then that may have done its part.
_LAST_WORDS_S = 0.05
#: How long others may go on with what they are doing once a rank has given a group up because another has died: what
#: they need has been sent by then, if the operation has come to an end anywhere.
_GRACE_S = 0.5
#: What one request to the store may take.
_STORE_S = 1.0
#: How long the host of the store stays after a verdict, so that all can read it.
_STAY_S = 0.25
#: When the first heartbeat is sent: a short program does not pay for it.
_FIRST_BEAT_S = 0.05
#: How many heartbeats the store gets in a second, of all ranks together: of more ranks each sends them more seldom.
_BEATS_A_SECOND = 256
#: And the first ones: of many ranks, most have made their group before, and need no second connection for them.
_FIRST_BEATS_A_SECOND = 64
#: How rare they may be if they are to tell of verdicts.
_TELLING_S = 20.0
#: One rank of a host tells of all where they may be silent for so many beats: it may take two until a rank notices that
#: nobody tells of it, and does so itself.
_TELLABLE_BEATS = 4.0
#: For how many ranks each rank looks whether they have fallen silent; and on a machine with so many ranks, whether
#: their processes are there. Where there are fewer, each watches all.
_OBSERVED, _ALL_WATCHED = 8, 64


class Watcher(Background):
    """Watches over one life of a world, whose store must be shared with other processes.

    Args:
        world: The groups of this rank.
        store: The store of this life.
        rank: This rank.
        ranks: All ranks of the world.
        progress: Tells how far this rank has come on each group.
    """

    def __init__(
        self, world: World, store: Store, rank: int, ranks: Sequence[int], progress: Callable[[], dict[str, Any]]
    ) -> None:
        self._world, self._store, self._tell_progress = world, store, progress
        self._rank, self._ranks = rank, ranks
        seldom = max(1.0, len(ranks) / _BEATS_A_SECOND)
        every_s = outage.setting("RANKWISE_HEARTBEAT_S", seldom)
        super().__init__(max(_FIRST_BEAT_S, min(len(ranks) / _FIRST_BEATS_A_SECOND, every_s)), every_s)
        self._limit_s = outage.setting("RANKWISE_HEARTBEAT_LIMIT_S", seldom * _silence_s(store))
        outage_s = max(self._limit_s, seldom * outage.limit_s())
        self._warn_s = outage.setting("RANKWISE_WARN_AFTER_S", 60.0)
        #: Whether heartbeats come often enough to bring verdicts along, so that those who meet need not ask for them.
        self.tells_verdicts = self._every_s <= _TELLING_S
        #: Who serves the store, if that is a rank.
        self._host = world.host
        bounded = store.view(min(_STORE_S, self._limit_s / 2))
        place = PrefixStore("watch", bounded)
        #: What answers those who look at the job from outside, and where they find it.
        self.on_question: Callable[[str], object] = lambda question: None
        self.place, self.rank = place, rank
        #: Verdicts about groups that this rank has not made yet, by their names.
        self._early: dict[str, Verdict] = {}
        self._log = Log(place, self._rank, self._heard, lambda question: self.on_question(question))
        self._beats = Beats(bounded, self._rank, "watch/")
        self._processes = Processes(rank)
        self._reporter = Reporter(rank, self._beats, self._processes, self._every_s, self._first_s)
        self._silence = Judge(
            *(self._beats, self._processes, Lateness(self._every_s, monotonic()), self._limit_s, outage_s, self._host),
            heard_at=lambda: getattr(innermost(store), "heard_at", 0.0),
        )
        #: Has one rank of this host tell of all, once all are known.
        self._host_beats: HostBeats | None = None
        self._dead: list[PeerDiedError] = []
        #: For each group the error of the first verdict about it, which is that of whatever comes later too.
        self._first: dict[str, DistError] = {}
        self._meetings: list[WatchedMeeting] = []
        self._warned: set[tuple[str, str, int]] = set()
        self._judged_at = 0.0
        self.begin()

    # ------------------------------------------------------------------ what communicators and the program ask

    def everyone_is_here(self, seats: Sequence[bytes | None]) -> None:
        """Learn that all ranks have come, and what each has told of itself."""
        self.do(partial(self._meet_all, seats))

    def settle(self, context: Context, error: DistError) -> DistError:
        """Return the error that all ranks raise for a group that has failed here with `error`."""
        limit_s = _ASK_S if isinstance(error, DistTimeoutError) else _ASK_FAILED_S
        if isinstance(error, DistNetworkError) and self._every_s < float("inf"):
            limit_s += (BEATS + 1) * self._every_s + _STORE_S  # to find out whether a rank has died
        return self.ask(lambda: self._judge(context, error), limit_s) or error

    def announce(self, context: Context, error: DistError) -> None:
        """Tell the others why a group has ended; waits for nothing."""
        self.do(lambda: self._judge(context, error))

    def explain(self, context: Context, error: DistTimeoutError, waited_for: tuple[int, ...]) -> DistTimeoutError:
        """Return a time-out's error with what is known of the ranks that it is due to."""
        told = self.ask(
            lambda: self._reporter.explain(context.name, context.global_ranks, str(error), waited_for), _ASK_S
        )
        return error if told is None else DistTimeoutError(told)

    def whereabouts(self, text: str, missing: Sequence[int], group: str) -> str:
        """Add to a text about missing ranks what they have last done on a group."""
        return self.ask(lambda: self._reporter.whereabouts(text, missing, group), _ASK_S) or text

    @contextmanager
    def meeting(
        self, place: Store, ranks: tuple[int, ...], what: str, hear: Callable[[bytes], None] | None = None
    ) -> Iterator[Callable[[], None]]:
        """While ranks wait for each other, have them told if one of them dies; give what raises if that is so.

        Args:
            place: Where they wait for a key "verdict", a part of the watcher's store.
            ranks: All who must come.
            what: What they come for, for the verdict.
            hear: Told what somebody says there, on the watcher's thread; see `tells_verdicts`.
        """
        meeting = WatchedMeeting(place, ranks, what, hear)
        self.do(lambda: self._attend(meeting))
        try:
            yield meeting.look
        finally:
            self.do(lambda: self._meetings.remove(meeting), at_once=False)

    def reported(self, peer: int, cause: str) -> None:
        """Learn from the engine that runs a rank that it has died, and tell the others."""
        self.do(partial(self._reported, peer, cause))

    def made(self, name: str) -> None:
        """Learn that this rank has made a group, which another may have given up already."""
        if name in self._early:  # what comes from now on finds the group
            self.do(lambda: self._heard(self._early.pop(name)))

    def stop(self) -> None:
        """End; the host of the store stays until the others can have read the last verdict."""
        super().stop()
        if self._judged_at and self._world.serves_store():
            sleep(max(0.0, self._judged_at + _STAY_S - monotonic()))

    # ------------------------------------------------------------------ what the thread does

    def round(self, late_s: float) -> None:
        """Send a heartbeat, and look for those of others."""
        self._silence.was_late(late_s)
        self._beat()

    def farewell(self) -> None:
        """Tell the others that this rank goes in good order."""
        self._processes.close()
        if self._host_beats is not None:
            self._host_beats.close()
        del self._log  # which calls this object: the two would stay until the garbage collector comes
        if self._world.groups:  # else it has never come so far, and the store may not even be there
            self._beats.give(self._progress(), left=True)

    # ------------------------------------------------------------------ verdicts

    def _judge(self, context: Context, error: DistError) -> DistError:
        if context.name not in self._first and isinstance(error, DistNetworkError) and error.rank is not None:
            error = self._weigh(context, error, error.rank)
        verdict = Verdict(context.name, self._first.get(context.name, error))
        if context.name not in self._first and isinstance(error, PeerDiedError):
            cause = self._processes.end_of(error.rank, _END_S)
            if cause is not None and self._has_died(error.rank, cause):
                verdict = Verdict("", PeerDiedError(error.rank, error.host, cause), is_certain=True)
                if error.rank == self._host:
                    self._heard(verdict)
                    return verdict.error
        try:
            settled = self._log.settle(verdict, context.name, context.global_ranks)
        except DistError:  # there is nobody to agree with
            return verdict.error
        return self._first.get(context.name, settled)

    def _weigh(self, context: Context, error: DistNetworkError, peer: int) -> DistError:
        """Return that a rank to which a connection failed has died or is out of reach, else the error as it is."""
        cause = self._processes.end_of(peer, _END_S)
        found = None if cause is None else (PeerDiedError, cause)
        if found is None and not self._processes.tells_of(peer) and self._every_s < float("inf"):
            found = silence(
                *(self._beats, peer, self._every_s, peer == self._host),
                live=lambda: self._beats.give(self._progress()),
                end=lambda: self._processes.end_of(peer),
                is_decided=lambda: self._is_decided(context),
                is_silent=error.is_silent,
            )
        if found is None:
            return error
        lost, why = found
        return lost(peer, self._processes.host(peer), why)

    def _is_decided(self, context: Context) -> bool:
        """Tell whether the log has a verdict about a group."""
        self._log.catch_up()
        return context.name in self._first

    def _heard(self, verdict: Verdict) -> None:
        """End all groups that a verdict is about, or of those of a dead rank what needs it."""
        self._judged_at = monotonic()
        if verdict.group and verdict.group not in self._world.groups:
            self._early[verdict.group] = verdict  # another rank has made the group already
        for group in list(self._world.groups.values()):
            if verdict.covers(group.name, group.ranks):
                self._first.setdefault(group.name, verdict.error)
                for communicator in group.communicators():
                    self._end(communicator, verdict)
        if isinstance(verdict.error, PeerDiedError) and not verdict.group:
            self._dead.append(verdict.error)
            for meeting in self._meetings:
                meeting.break_up(verdict.error)

    def _end(self, communicator: Communicator, verdict: Verdict) -> None:
        error = self._first[communicator.context.name]
        if isinstance(verdict.error, PeerDiedError) and (verdict.is_certain or self._is_dead(verdict.error.rank)):
            rank = communicator.context.global_ranks.index(verdict.error.rank)
            if communicator.peer_died(rank, verdict.error):
                if not verdict.is_certain:
                    # A rank has given the group up for this, and cannot be waited for; others may be about to finish.
                    self.after(_GRACE_S, partial(self._give_up, communicator, error))
                return
            if communicator.is_busy():
                self.after(_LAST_WORDS_S, partial(self._give_up, communicator, error))
                return
        communicator.give_up(error)

    def _is_dead(self, rank: int) -> bool:
        return any(error.rank == rank for error in self._dead)

    def _give_up(self, communicator: Communicator, error: DistError) -> None:
        """Give up a group of a dead rank, if it is still there."""
        if any(communicator in group.communicators() for group in list(self._world.groups.values())):
            communicator.give_up(error)

    def _ended(self, peer: int) -> None:
        """Learn that a process on this machine has ended."""
        cause = self._processes.end_of(peer) or "its process has ended"
        concerned = any(peer in group.rank_of for group in list(self._world.groups.values())) or self._meetings
        if not concerned or not self._has_died(peer, cause):
            return
        verdict = Verdict("", PeerDiedError(peer, self._processes.host(peer), cause), is_certain=True)
        if peer == self._host:
            self._heard(verdict)
            return
        try:
            self._log.settle(verdict, "", (peer,))
        except DistTimeoutError:
            self.hear(self._processes.descriptors[peer], partial(self._ended, peer))  # the store is slow: once more

    def _reported(self, peer: int, cause: str) -> None:
        verdict = Verdict("", PeerDiedError(peer, self._processes.host(peer), cause), is_certain=True)
        if peer != self._host:
            with suppress(DistError):
                self._log.settle(verdict, "", (peer,))
                return
        self._heard(verdict)  # the store may have gone with it, and the others hear of it as this rank has

    def _attend(self, meeting: WatchedMeeting) -> None:
        self._meetings.append(meeting)
        for error in self._dead:
            meeting.break_up(error)

    # ------------------------------------------------------------------ heartbeats

    def _progress(self) -> dict[str, Any]:
        """Return how far this rank has come; a flaw in what tells it must not keep back that this rank lives."""
        told: dict[str, Any] = {}
        guarded(lambda: told.update(self._tell_progress()))
        return told

    def _beat(self) -> None:
        progress = self._progress()
        number, text = self._beats.next(progress)
        awaited, meetings = self._awaited(progress), self._late_meetings()
        heard = None if self._host_beats is None else self._host_beats.hand_over(number, text)
        if heard is not None and not awaited and not self._meetings:
            self._silence.answered()
            if heard > self._log.count:
                self._log.catch_up()
            return
        if self._host_beats is not None and self._host_beats.falls_between():
            self.advance(self._every_s / 2)
        observed = {rank for ranks in (*awaited.values(), *meetings.values()) for rank in self._observed(ranks)}
        try:
            beats = self._ask_store(text, sorted(observed))
        except DistError:
            self._doubt_host(progress)
            return
        self._silence.answered()
        for meeting, ranks in meetings.items():
            silent = self._silence.hung_among(self._observed(ranks), beats)
            if silent is not None:
                meeting.break_up(silent)
        for name, ranks in awaited.items():
            group = self._world.groups.get(name)
            if group is None:  # destroyed meanwhile
                continue
            self._look_for_silent(group, ranks, beats)
            for step in progress[name]["pending"]:
                if step["age_s"] > self._warn_s:
                    self._warn(group, step)

    def _ask_store(self, text: bytes, observed: Sequence[int]) -> dict[int, Beat]:
        """Send a heartbeat, take in what is new, and return the last ones of others; all in one request."""
        key, behind, host = self._log.next_key, self._unknown_behind(), self._host_beats
        heard = [(meeting, meeting.verdict_within(self._store)) for meeting in self._meetings if meeting.hear]
        heeded = [(meeting.hear, place) for meeting, place in heard if meeting.hear and place]
        keys = [f"watch/{key}", *(place for _, place in heeded), *(f"{MEETING}/rank/{rank}" for rank in behind)]
        to_tell, to_ask = ({}, []) if host is None else (host.to_tell(), host.to_ask())
        beats, (entry, *found) = self._beats.trade(text, to_tell, observed, [*keys, *to_ask])
        answers = iter(found)
        for (hear, _), verdict in zip(heeded, answers, strict=False):
            if verdict is not None:
                hear(verdict)
        for rank, seat in zip(behind, answers, strict=False):
            if seat is not None:
                self._processes.learn({rank: seat})
                self._attend_to(rank)
        for meeting, place in heard:
            if not place:
                meeting.ask()
        if key == self._log.next_key:  # else it has been heard meanwhile
            self._log.take(entry)
        if host is not None:
            host.has_told(list(answers), self._log.count)
        return beats

    def _awaited(self, progress: dict[str, Any]) -> dict[str, set[int]]:
        """Return for each group the ranks that operations have been waiting for, longer than for a beat."""
        found: dict[str, set[int]] = {}
        for name, steps in progress.items():
            group = self._world.groups.get(name)
            for step in steps["pending"]:
                if group is not None and step["age_s"] > min(self._every_s, self._limit_s):
                    peers = group.ranks if step["peer"] is None else (step["peer"],)
                    found.setdefault(name, set()).update(set(peers) - {self._rank})
        return found

    def _late_meetings(self) -> dict[WatchedMeeting, set[int]]:
        """Return the meetings that have taken longer than a beat, and who else must come."""
        began_before = monotonic() - min(self._every_s, self._limit_s)
        late = [meeting for meeting in self._meetings if meeting.began_at < began_before]
        return {meeting: set(meeting.ranks) - {self._rank} for meeting in late}

    def _observed(self, awaited: set[int]) -> list[int]:
        """Return those of the awaited ranks that have come and that this one looks after.

        So each rank is looked after by those before it, and nobody asks for everyone.
        """
        return self._behind(awaited & self._processes.known())

    def _unknown_behind(self) -> list[int]:
        """Return the rank behind this one if not all have come and this one has not been seen."""
        if len(self._processes.known()) >= len(self._ranks):
            return []
        behind = self._ranks[(self._ranks.index(self._rank) + 1) % len(self._ranks)]
        return [] if behind in self._processes.known() else [behind]

    def _meet_all(self, seats: Sequence[bytes | None]) -> None:
        self._processes.learn(dict(zip(self._ranks, seats, strict=True)))
        here = self._processes.here()
        for rank in here if len(here) < _ALL_WATCHED else self._behind(here):
            self._attend_to(rank)
        is_safe = self._beats.may_be_told and self._limit_s >= _TELLABLE_BEATS * self._every_s
        if len(here) + 1 >= FEWEST and is_safe:
            self._host_beats = HostBeats(self._rank, {*here, self._rank}, self._processes.pid, self._beats.prefix)
            self._beats.at_hand = self._host_beats.at_hand

    def _behind(self, ranks: Set[int]) -> list[int]:
        """Return the few ranks that this one looks after: the next behind it."""
        come = sorted(ranks)
        return (come[(at := bisect(come, self._rank)) :] + come[:at])[:_OBSERVED]

    def _attend_to(self, peer: int) -> None:
        """Begin to watch the process of a rank, which may have ended between its coming and now."""
        descriptor = self._processes.watch(peer)
        if descriptor is not None:
            self.hear(descriptor, partial(self._ended, peer))
        elif peer not in self._processes.descriptors and self._processes.end_of(peer) is not None:
            self._ended(peer)

    def _doubt_host(self, progress: dict[str, Any]) -> None:
        """Give up the groups that wait while the rank that hosts the store hangs, and the store with it."""
        hung = self._silence.hung_host() if self._rank != self._host else None
        if hung is None:
            return
        if any(self._host in peers for peers in self._awaited(progress).values()):
            self._heard(Verdict("", hung))
        for meeting in self._meetings:
            meeting.leave(hung)

    def _has_died(self, peer: int, cause: str) -> bool:
        """Tell whether a rank whose process has ended had not destroyed its groups before."""
        if peer == self._host:
            return "killed" in cause  # the store went with it, and nobody knows more
        with suppress(DistError):
            beat = self._beats.read([peer]).get(peer)
            return beat is None or not beat.left
        return "killed" in cause

    def _look_for_silent(self, group: ProcessGroup, awaited: set[int], beats: Mapping[int, Beat]) -> None:
        """Give up the groups of a rank that is waited for on one of them, and has hung for too long."""
        silent = self._silence.hung_among(self._observed(awaited), beats)
        if silent is not None:
            self._log.settle(Verdict("", silent), group.name, group.ranks)

    # ------------------------------------------------------------------ words

    def _warn(self, group: ProcessGroup, step: Any) -> None:
        key = group.name, step["op"], step["number"]
        if key in self._warned:
            return
        import logging

        from rankwise_watch.recorder import describe

        self._warned.add(key)
        peers = () if step["peer"] is None else (step["peer"],)
        text = f"{describe(step)} on group {group.name!r}, rank {self._rank}: not done for {step['age_s']:.0f} s"
        told = self._reporter.explain(group.name, group.ranks, text, peers)
        logging.getLogger("rankwise").warning("%s", told)


def _silence_s(store: Store) -> float:
    """Return how long a rank may be silent: longer where the store's messages queue with the program's data."""
    return float(getattr(innermost(store), "silence_s", 5.0))
