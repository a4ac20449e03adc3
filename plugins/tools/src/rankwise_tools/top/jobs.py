"""Running jobs, and how their ranks are asked for samples: through sockets of this machine, or the job's store."""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from rankwise.errors import DistError, DistNetworkError
from rankwise.launching import Deadline
from rankwise_launch.toolbox import STORE_OF_RANKS, CommandError
from rankwise_network import doors
from rankwise_tools.top.samples import Sample, checked
from rankwise_watch.reading import NAME, QUESTION, answer_key, wish_key

if TYPE_CHECKING:
    from rankwise_stores import TCPStore

_ANSWER_S = 2.0
_MOST_NBYTES = 16 << 20
_BEAT = re.compile(r"(.*watch)/beat/(\d{1,7})")
_NAMES = re.compile(rf"@({re.escape(NAME)}\S+)")


class Job(Protocol):
    """A job that can be asked."""

    #: The ranks that are there, and have not answered in time.
    silent: set[int]

    def samples(self) -> dict[int, Sample]:
        """Return what the ranks show now; those that do not answer are missing."""

    def close(self) -> None:
        """Ask no more."""


# ---------------------------------------------------------------------- on this machine


class _Rank:
    """A rank of this machine."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._sock = doors.call_at(name, Deadline(_ANSWER_S))
        try:
            #: Root sees everybody's jobs, each user's for itself: no process counts as a rank of another user's job.
            self.owner = doors.owner_of(self._sock)
            if os.geteuid() and not doors.is_own_user(self._sock):
                raise PermissionError("the process belongs to somebody else")
            self.ask()
        except OSError:
            self._sock.close()
            raise

    def ask(self) -> None:
        """Ask; the answer is fetched later, so that all ranks are asked at about one time."""
        self._sock.send(b"?")

    def answer(self, until: float) -> Sample:
        """Return what the rank shows.

        Raises:
            TimeoutError: It has not answered in time.
            OSError: It has gone.
            ValueError: Its answer makes no sense.
        """
        (length,) = struct.unpack("<I", self._exactly(4, until))
        if length > _MOST_NBYTES:
            raise ValueError("too long")
        return checked(self._exactly(length, until))

    def _exactly(self, count: int, until: float) -> bytes:
        self._sock.settimeout(max(0.01, until - monotonic()))
        found = self._sock.recv(count, socket.MSG_WAITALL)
        if len(found) < count:
            raise ConnectionResetError
        return found

    def close(self) -> None:
        self._sock.close()


class LocalJob:
    """The ranks of one job that run on this machine.

    Attributes:
        silent: Those that have not answered in time: they are stopped, or something holds their interpreters.
    """

    def __init__(self, ranks: dict[int, _Rank], first: dict[int, Sample]) -> None:
        self._ranks, self._first = ranks, first
        self._owner = next((rank.owner for rank in ranks.values()), os.geteuid())
        self._strangers: set[str] = set()
        self.silent: set[int] = set()

    @property
    def place(self) -> str:
        """What tells this job from others."""
        return str(next(iter(self._first.values()))["job"])

    @property
    def owner(self) -> int:
        """The user whose job it is, by number."""
        return self._owner

    def describe(self) -> str:
        """Return one line about it."""
        sample = next(iter(self._first.values()))
        whose = f", group {sample['outside']!r}" if sample["outside"] else ""
        whose += f", of user {self._owner}" if self._owner != os.geteuid() else ""
        return f"{len(self._ranks)} of {len(sample['ranks'])} ranks, {sample['program']}{whose}"

    @property
    def outside(self) -> str:
        """The group outside of the world whose ranks these are; "" for the world's."""
        return str(next(iter(self._first.values()))["outside"])

    def processes(self) -> set[int]:
        """Return its processes' numbers."""
        return {int(sample["pid"]) for sample in self._first.values()}

    def samples(self) -> dict[int, Sample]:
        """Return what the ranks show now."""
        if len(self._ranks) < len(next(iter(self._first.values()))["ranks"]):
            self._look_for_more()
        asked = [rank for rank in sorted(self._ranks) if self._ask(rank)]
        until = monotonic() + _ANSWER_S
        found = {rank: self._answer(rank, until) for rank in asked}
        return {rank: sample for rank, sample in found.items() if sample is not None}

    def _look_for_more(self) -> None:
        """Take in ranks that have opened their windows since this job was found."""
        known = {rank.name for rank in self._ranks.values()} | self._strangers
        for rank, sample in _asked(name for name in _names() if name not in known):
            ours = sample["job"] == self.place and rank.owner == self.owner
            if ours and sample["rank"] not in self._ranks:
                self._ranks[sample["rank"]], self._first[sample["rank"]] = rank, sample
            else:
                rank.close()
                self._strangers.add(rank.name)

    def _ask(self, rank: int) -> bool:
        """Ask a rank, over a new connection if it has been silent: the answer to an old question says nothing now."""
        known = self._ranks[rank]
        try:
            if rank in self.silent:
                self._ranks[rank] = _Rank(known.name)
            else:
                known.ask()
        except OSError:  # it has ended
            known.close()
            del self._ranks[rank]
            self.silent.discard(rank)
            return False
        return True

    def _answer(self, rank: int, until: float) -> Sample | None:
        known = self._ranks[rank]
        try:
            sample = known.answer(until)
        except TimeoutError:
            known.close()
            self.silent.add(rank)
            return None
        except (OSError, ValueError):  # it has ended
            self._ranks.pop(rank).close()
            self.silent.discard(rank)
            return None
        self.silent.discard(rank)
        return sample

    def close(self) -> None:
        """Ask no more."""
        for rank in self._ranks.values():
            rank.close()


def local_jobs() -> list[LocalJob]:
    """Return the jobs of this user on this machine, as far as they have more than one rank."""
    found: dict[tuple[int, str], tuple[dict[int, _Rank], dict[int, Sample]]] = {}
    for rank, sample in _asked(_names()):
        ranks, samples = found.setdefault((rank.owner, str(sample["job"])), ({}, {}))
        if sample["rank"] in ranks:  # of a job that is ending at this address
            ranks[sample["rank"]].close()
        ranks[sample["rank"]], samples[sample["rank"]] = rank, sample
    return [LocalJob(ranks, samples) for ranks, samples in found.values()]


def _asked(names: Iterable[str]) -> Iterator[tuple[_Rank, Sample]]:
    """Ask all at the same time, and yield those that answer."""
    asked: list[_Rank] = []
    for name in names:
        with suppress(OSError):
            asked.append(_Rank(name))
    until = monotonic() + _ANSWER_S
    for rank in asked:
        try:
            sample = rank.answer(until)
        except (OSError, ValueError):
            rank.close()
            continue
        yield rank, sample


def _names() -> Iterator[str]:
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
            yield from sorted(set(_NAMES.findall(file.read())))
    except OSError as error:
        raise CommandError(
            "this system does not tell which jobs run here; give the job's address: rankwise top tcp://HOST:PORT"
        ) from error


# ---------------------------------------------------------------------- through the store


class StoreJob:
    """A job that is reached through the store in which its ranks have met.

    Args:
        store: The store, which is closed with this.
        place: The prefix under which their watchers write.
        ranks: All that have sent a heartbeat.
    """

    def __init__(self, store: Any, place: str, ranks: list[int]) -> None:
        from rankwise.launching import PrefixStore
        from rankwise_watch.reading import ask

        self._store, self._ranks = store, ranks
        self.silent: set[int] = set()
        self._question, self._wish, self._answered = os.urandom(8).hex(), 0, False
        self._place = PrefixStore(place, store)
        self._place.set(wish_key(self._question), "0")
        ask(self._place, QUESTION + self._question)

    def samples(self) -> dict[int, Sample]:
        """Return what the ranks have shown last; the first time, wait until all have answered or a while has passed."""
        self._wish += 1
        self._place.set(wish_key(self._question), str(self._wish))
        found = self._found()
        until = monotonic() + _ANSWER_S + 1.0
        while not self._answered and len(found) < len(self._ranks) and monotonic() < until:
            sleep(0.05)
            found = self._found()
        self._answered = True
        self.silent = set(self._ranks) - set(found)
        return found

    def _found(self) -> dict[int, Sample]:
        found: dict[int, Sample] = {}
        for rank in self._ranks:
            told = self._place.peek(answer_key(self._question, rank))
            with suppress(ValueError):  # another version, or nonsense: as if it had not answered
                if told is not None:
                    sample = checked(told)
                    if sample["rank"] == rank:
                        found[rank] = sample
        return found

    def close(self) -> None:
        """Ask no more."""
        try:
            with suppress(DistError):
                self._place.delete_key(wish_key(self._question))
        finally:
            self._store.close()


def open_store(address: str) -> StoreJob:
    """Return the job that meets at an address; the secret is that of the environment."""
    parts = urlsplit(address)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "tcp" or not parts.hostname or not port:
        raise CommandError(f"{address!r} is no address of a job; it must read like tcp://HOST:PORT", 2)
    store = _store_at(parts.hostname, port)
    try:
        place, ranks = _place(store.list_keys(), address)
        return StoreJob(store, place, ranks)
    except BaseException:
        store.close()
        raise


def _store_at(host: str, port: int) -> TCPStore:
    """Return the store at a master's port; or that of the ranks, as the launchers say that meet at the next port."""
    from rankwise_stores import TCPStore

    begin = partial(TCPStore, host, timeout=_ANSWER_S + 3.0, wait_for_server=False)
    try:
        return begin(port)
    except DistNetworkError:
        with suppress(DistError, ValueError), begin(port + 1) as launchers:
            return begin(int(launchers.get(STORE_OF_RANKS)))
        raise


def _place(keys: list[str], address: str) -> tuple[str, list[int]]:
    """Return where the watchers of the world write, or of the largest group outside of it, and those that have."""
    places: dict[str, list[int]] = {}
    for key in keys:
        if beat := _BEAT.fullmatch(key):
            places.setdefault(beat[1], []).append(int(beat[2]))
    if not places:
        raise CommandError(f"no job runs at {address}: its store is there, but no rank has sent a heartbeat")
    place = max(places, key=lambda place: (place == "world/watch", len(places[place])))
    return place, sorted(places[place])
