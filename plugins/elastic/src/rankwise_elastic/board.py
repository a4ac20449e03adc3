"""The protocol's epochs in the store of a job, and what is known there of the processes that live."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from rankwise.errors import DistError, DistNetworkError, DistTimeoutError
from rankwise.observing import PrefixStore, Store, is_gone, start_thread
from rankwise_elastic.rounds import Arrival, Seen

#: How often a process says that it lives, and for how long it may be silent; a process may be stopped for a while.
BEAT_S, SILENCE_S = 1.0, 6.0
#: What a process says last that leaves in good order.
_LEFT = b"left"
#: What is said of members that hear each other.
_WELL = b"well"
#: What one request of the thread that says so may take.
_ASK_S = 2.0


def name(process: str) -> str:
    """Return what tells a process from others in the store's keys and in messages."""
    return str(json.loads(process)["id"])


def where(process: str) -> str:
    """Return the host and the number of a process, for messages."""
    card = json.loads(process)
    return f"{card['host']}, pid {card['pid']}"


def _launched_as(arrival: Arrival) -> float:
    rank = int(json.loads(arrival.process)["rank"])
    return rank if rank >= 0 else float("inf")


class _Heard(NamedTuple):
    said: bytes | None
    since: float
    asked_at: float


class StoreBoard:
    """See `rankwise_elastic.rounds.Board`."""

    def __init__(self, store: Store) -> None:
        self._store = PrefixStore("epochs", store)

    def look(self, epoch: int) -> Seen:
        """Return what there is of an epoch; whether it is decided is asked last, as that counts.

        Where there was none before, processes stand in the order in which a launcher has numbered them.
        """
        arrived = self._arrived(epoch)
        before = self.decided(epoch - 1) or ()
        if not before:
            arrived.sort(key=_launched_as)
        decided = self.decided(epoch)
        if decided is not None:  # a member may have arrived since, which all must see alike
            arrived = self._arrived(epoch)
        return Seen(decided, tuple(arrived), before)

    def _arrived(self, epoch: int) -> list[Arrival]:
        found: dict[str, Arrival] = {}
        for line in (self._store.peek(f"{epoch}/arrived") or b"").decode().splitlines():
            process, stood, doubts, missed = json.loads(line)
            found.setdefault(process, Arrival(process, stood, doubts, frozenset(missed)))
        return [*found.values()]

    def arrive(self, epoch: int, arrival: Arrival) -> None:
        """Enter a process among those that want to be in an epoch."""
        self._store.append(f"{epoch}/arrived", json.dumps([*arrival[:3], sorted(arrival.missed)]) + "\n")

    def decide(self, epoch: int, members: tuple[str, ...]) -> None:
        """Write the members of an epoch, unless they are written already."""
        self._store.compare_set(f"{epoch}/members", "", "\n".join(members))

    def decided(self, epoch: int) -> tuple[str, ...] | None:
        """Return the members of an epoch, once they are decided."""
        said = self._store.peek(f"{epoch}/members")
        return None if said is None else tuple(said.decode().splitlines())

    def note_well(self, epoch: int) -> int:
        """Note that a member of an epoch has heard all others; return how many have."""
        return self._store.add(f"{epoch}/well", 1)

    def judge(self, epoch: int, is_well: bool) -> bool:
        """Say whether the members of an epoch hear each other; return what was said first, by which all go."""
        return self._store.compare_set(f"{epoch}/verdict", "", _WELL if is_well else "apart") == _WELL

    def verdict(self, epoch: int) -> bool | None:
        """Return what was said of that; None if nobody has said anything."""
        said = self._store.peek(f"{epoch}/verdict")
        return None if said is None else said == _WELL

    def awaits_anyone(self, epoch: int) -> bool:
        """Tell whether somebody wants to be in an epoch."""
        return self._store.check([f"{epoch}/arrived"])

    def latest(self) -> int:
        """Return an epoch that has begun, near the latest."""
        return int(self._store.peek("latest") or 0)

    def note_finished(self) -> None:
        """Note that a rank has come to the end of what the job was to do."""
        self._store.set("finished", "")

    def is_finished(self) -> bool:
        """Tell whether a rank has come to the end of what the job was to do."""
        return self._store.check(["finished"])

    def note_made(self, epoch: int) -> None:
        """Note that an epoch has begun; who wanted to be in earlier ones, and heard whom, need not be known any more.

        Their members are kept, as no epoch must be decided twice.
        """
        first = max(1, self.latest() - 1)
        self._store.set("latest", str(epoch))
        for past in range(first, epoch - 1):
            for key in ("arrived", "well", "verdict"):
                self._store.delete_key(f"{past}/{key}")


class Pulse:
    """Says in the store that a process lives, and notices who else has not said so for long.

    Its thread also looks whether anybody wants to join, so that the ranks of a running job need not ask.

    Args:
        store: The job's.
        process: This one.
    """

    def __init__(self, store: Store, process: str) -> None:
        self._store, self._mine = PrefixStore("pulse", store), name(process)
        #: The same, without patience: its server may be away for a while, which whoever needs it says.
        self._glance = self._store.view(_ASK_S)
        self._board = StoreBoard(store.view(_ASK_S))
        #: For each process that was asked about what it has said last, and since when that is known.
        self._heard: dict[str, _Heard] = {}
        #: Why processes are gone, for certain; and why others are said to be, with what they had said last by then.
        self._known: dict[str, str] = {}
        self._told: dict[str, tuple[str, bytes | None]] = {}
        #: The epoch that newcomers would be in, 0 where there is no room for any, and whether somebody waits for it.
        self._next_epoch, self.is_awaited = 0, False
        self._ended = threading.Event()
        self._store.set(self._mine, "0")  # waits as long as the program lets it, as the server may be away
        self._thread = threading.Thread(target=self._run, name="rankwise elastic", daemon=True)
        start_thread(self._thread)

    def stop(self) -> None:
        """End the thread, and take out of the store what it has said; nothing, if this process has left."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join(_ASK_S)
        with suppress(DistError):
            self._glance.delete_key(self._mine)

    def expect(self, epoch: int) -> None:
        """Look from now on whether somebody waits for an epoch; for none if it is 0."""
        self._next_epoch, self.is_awaited = epoch, False

    def leave(self) -> None:
        """Tell the others that this process leaves in good order, and end."""
        self._ended.set()
        self._thread.join(_ASK_S)
        self._store.set(self._mine, _LEFT)

    def learn(self, process: str, cause: str) -> None:
        """Be told that a process is gone; that is forgotten if it says again that it lives, as after a long stop."""
        self._told.setdefault(process, (cause, self._hear(process, True).said))

    def why_gone(self, process: str, fresh: bool = False) -> str:
        """Return how a process has ended, as far as anybody knows; "" if it may live.

        Args:
            process: The process.
            fresh: Whether to ask the store, however short the time since it was asked last.
        """
        if process in self._known:
            return self._known[process]
        if name(process) == self._mine:
            return ""
        is_over = is_gone(json.loads(process))  # what it has said last is asked after that
        heard, (cause, said) = self._hear(process, fresh or is_over), self._told.get(process, ("", None))
        if heard.said == _LEFT:
            self._known[process] = "it left after a notice"
        elif is_over:
            self._known[process] = cause or "its process has ended"
        if process in self._known:
            return self._known[process]
        if cause and said == heard.said:
            return cause
        silent_s = monotonic() - heard.since
        return f"it has said nothing for {silent_s:.0f} s" if silent_s > SILENCE_S else ""

    def is_lost(self, process: str, wait_s: float) -> bool:
        """Tell whether a process has ended for certain, or has been silent for `wait_s` longer than one that is gone.

        The others' word that it is gone does not count, as that may come of a shorter silence.
        """
        if not self.why_gone(process):
            return False
        return process in self._known or monotonic() - self._heard[process].since > SILENCE_S + wait_s

    def gone_among(self, processes: Iterable[str]) -> dict[str, str]:
        """Return those that are gone, with the cause."""
        return {process: cause for process in processes if (cause := self.why_gone(process))}

    def _hear(self, process: str, fresh: bool) -> _Heard:
        """Return what a process has said last. While the store is out of reach nobody falls silent."""
        now, heard = monotonic(), self._heard.get(process)
        if fresh or heard is None or now - heard.asked_at > BEAT_S / 4:
            before = None if heard is None else heard.said
            try:
                said = self._glance.peek(name(process))
            except (DistNetworkError, DistTimeoutError):
                said, now = before, monotonic()
                since = now
            else:
                since = now if heard is None or said != before else heard.since
            heard = self._heard[process] = _Heard(said, since, now)
        return heard

    def _run(self) -> None:
        number = 1
        while not self._ended.wait(BEAT_S):
            with suppress(DistError):  # the store may be away for a while; what needs it says so
                self._beat(number)
                epoch = self._next_epoch
                if epoch and self._board.awaits_anyone(epoch) and epoch == self._next_epoch:
                    self.is_awaited = True
            number += 1

    def _beat(self, number: int) -> None:
        self._glance.set(self._mine, str(number))
