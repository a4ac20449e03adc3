"""One rank of a host tells of all: what others see of a rank is never old, whatever the teller does."""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from rankwise.errors import DistError, DistTimeoutError, GroupAbortedError
from rankwise.groups.handshake import process_space, started_at
from rankwise.groups.world import World
from rankwise.store import HashStore
from rankwise_watch import telling
from rankwise_watch.heartbeat import Beats
from rankwise_watch.host_beats import HostBeats
from rankwise_watch.telling import Entry, Member, Page, Teller
from rankwise_watch.verdict import Log, Verdict
from rankwise_watch.watcher import Watcher

PATIENCE_S = 20.0
COUNT = 4


class Memory:
    """A page's bytes. In the middle of a write others may do something: they see one half of it."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.data, self._meanwhile, self._is_busy = bytearray(), meanwhile, False

    def read(self, nbytes: int, offset: int) -> bytes:
        return bytes(self.data[offset : offset + nbytes])

    def write(self, data: bytes, offset: int) -> None:
        self.data.extend(bytes(max(0, offset + len(data) - len(self.data))))
        half = len(data) // 2
        self.data[offset : offset + half] = data[:half]
        if not self._is_busy:
            self._is_busy = True
            self._meanwhile()
            self._is_busy = False
        self.data[offset + half : offset + len(data)] = data[half:]


class Host:
    """A teller, its members, and what the store has of each, driven step by step."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        memory = Memory(self._meanwhile)
        page = Page(memory.read, memory.write, COUNT)
        memory.data.extend(bytes(page.nbytes))
        self._teller = Teller(page, COUNT)
        self._members = [Member(page, place) for place in range(COUNT)]
        self._is_stopped = False
        self._taken: list[dict[int, Entry]] = []
        self.numbers, self.gone = [0] * COUNT, set[int]()
        self.sent: list[Entry | None] = [None] * COUNT
        self.told: list[Entry | None] = [None] * COUNT
        self.own = 0

    def _meanwhile(self) -> None:
        if self._chance.random() < 0.3:
            self.teller_step()

    def teller_step(self) -> None:
        """Do the teller's next step: look, reach the store, or learn that it has been reached."""
        if self._is_stopped:
            return
        if not self._taken:
            self._taken.append(self._teller.collect())
            return
        taken = self._taken[0]
        for place, entry in taken.items():
            assert entry.text == _text(place, entry.number)
            self.told[place] = entry
        if self._chance.random() < 0.8:  # else the answer has not come in time
            self._teller.has_told(taken, 0)
        self._taken.clear()

    def beat(self, place: int) -> None:
        self.numbers[place] += 1
        entry = Entry(self.numbers[place], _text(place, self.numbers[place]))
        if self._members[place].hand_over(entry) is None:
            self.own += 1
            self.sent[place] = entry
        assert self.newest(place) >= entry.number - 1

    def leave(self, place: int) -> None:
        self.numbers[place] += 1
        self.sent[place] = Entry(self.numbers[place], b"left")
        self.gone.add(place)

    def newest(self, place: int) -> int:
        return max(entry.number for entry in (self.sent[place], self.told[place]) if entry is not None)

    def act(self) -> None:
        chance, place = self._chance.random(), self._chance.randrange(COUNT)
        if chance < 0.05:
            self._is_stopped = not self._is_stopped
        elif chance < 0.06 and place not in self.gone and self.numbers[place]:
            self.leave(place)
        elif chance < 0.5:
            self.teller_step()
        elif place not in self.gone:
            self.beat(place)
        for gone in self.gone:
            newest = max(filter(None, (self.sent[gone], self.told[gone])))
            assert newest.text == b"left"


def _text(place: int, number: int) -> bytes:
    return json.dumps([number, place]).encode() * (1 + number % 7)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_order_things_happen_in_no_signs_of_life_are_kept_back(seed: int) -> None:
    host = Host(seed)
    for _ in range(1500):
        host.act()


def test_each_place_has_room_of_its_own_and_what_is_larger_is_not_told() -> None:
    memory = Memory(lambda: None)
    page = Page(memory.read, memory.write, COUNT)
    most = b"x" * (telling._PLACE_NBYTES - telling._HEAD.size)
    entries = [Entry(7 + place, most) for place in range(COUNT)]
    assert all(page.put(place, entry) for place, entry in enumerate(entries))
    assert len(memory.data) == page.nbytes
    assert [*page.entries()] == [*enumerate(entries)]
    assert [page.get(place) for place in range(COUNT)] == entries
    assert not page.put(1, Entry(9, most + b"x"))
    assert [place for place, _ in page.entries()] == [0, 2, 3]


def test_a_rank_has_just_missed_the_first_of_those_that_are_not_told() -> None:
    memory = Memory(lambda: None)
    page = Page(memory.read, memory.write, 1)
    member, teller = Member(page, 0), Teller(page, 1)

    def beat(number: int, told: bool, text: bytes = b"x") -> tuple[int | None, bool]:
        heard = member.hand_over(Entry(number, text))
        if told:
            teller.has_told(teller.collect(), 5)
        return heard, member.has_just_missed

    assert beat(1, True) == (None, False)  # nothing came before it
    assert beat(2, False) == (5, False)
    assert beat(3, False) == (None, True)
    assert beat(4, True) == (None, False)
    assert beat(5, False) == (5, False)
    assert beat(6, True) == (None, True)
    assert beat(7, True, b"x" * 5000) == (5, False)  # for which there is no room
    assert beat(8, True) == (None, False)
    assert beat(9, True) == (5, False)


def test_where_the_teller_keeps_up_nobody_else_asks() -> None:
    host = Host(0)
    host._chance = SimpleNamespace(random=lambda: 0.5)  # type: ignore[assignment]
    for _ in range(50):
        for place in range(COUNT):
            host.beat(place)
        host.teller_step()
        host.teller_step()
    assert host.own == COUNT


@pytest.mark.parametrize("phase", range(20))
def test_a_rank_that_falls_between_moves_out_of_the_way(phase: int) -> None:
    host = Host(0)
    host._chance = SimpleNamespace(random=lambda: 0.5)  # type: ignore[assignment]
    beat_at, steps_at = phase, {0, 7}  # the teller looks, and is answered; the interval is 20
    for now in range(20 * 50):
        if now == beat_at:
            host.beat(1)
            beat_at += 10 if host._members[1].has_just_missed else 20
        if now % 20 in steps_at:
            host.teller_step()
    assert host.own <= 3


def test_what_has_no_room_is_sent_by_its_own_rank() -> None:
    data = bytearray(1 << 14)
    page = Page(lambda n, at: bytes(data[at : at + n]), lambda new, at: _store(data, new, at), 1)
    member, teller = Member(page, 0), Teller(page, 1)
    for number in range(1, 5):
        assert member.hand_over(Entry(number, b"x" * 5000)) is None
        assert teller.collect() == {}
        teller.has_told({}, 0)


def _store(data: bytearray, new: bytes, at: int) -> None:
    data[at : at + len(new)] = new


# ---------------------------------------------------------------------- watchers of one host


EVERY_S = 0.05


class Counted(HashStore):
    """A store that counts whose heartbeats come, and can keep one rank's from coming."""

    def __init__(self) -> None:
        super().__init__()
        #: All views of it share these.
        self.now = SimpleNamespace(beats=Counter(), told=Counter(), changed=threading.Condition(), refused=())

    def _set_and_peek(self, values: Any, keys: Any) -> Any:
        if any(f"watch/beat/{rank}" in values for rank in self.now.refused):
            raise DistTimeoutError("no answer in time")
        found = super()._set_and_peek(values, keys)
        with self.now.changed:
            for key in values:
                kind, rank = key.split("/")[1:]
                if kind != "page":
                    getattr(self.now, {"beat": "beats", "told": "told"}[kind])[int(rank)] += 1
            self.now.changed.notify_all()
        return found

    def until(self, is_so: Callable[[], bool]) -> None:
        with self.now.changed:
            assert self.now.changed.wait_for(is_so, PATIENCE_S)


class Idle:
    """A group in which nobody waits."""

    name, ranks, rank_of = "dp", tuple(range(COUNT)), {rank: rank for rank in range(COUNT)}

    def __init__(self, rank: int) -> None:
        self.context = SimpleNamespace(name="dp", rank=rank, global_ranks=self.ranks)
        self.ended: list[DistError] = []
        self.has_ended = threading.Event()

    def communicators(self) -> list[Any]:
        return [self]

    def give_up(self, error: DistError) -> None:
        self.ended.append(error)
        self.has_ended.set()


@contextmanager
def host(store: Counted, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Watcher, Idle]]]:
    """Watch as each rank of a host."""
    monkeypatch.setenv("RANKWISE_HEARTBEAT_S", str(EVERY_S))
    monkeypatch.setenv("RANKWISE_HEARTBEAT_LIMIT_S", "20")
    me = {"host": "here", "pid": os.getpid(), "space": process_space(), "started": started_at(os.getpid())}
    seats = [json.dumps(me).encode()] * COUNT
    with ExitStack() as stack:
        found = []
        for rank in range(COUNT):
            world, group = World(), Idle(rank)
            world.groups["dp"] = group  # type: ignore[assignment]
            watcher = Watcher(world, store.view(1.0), rank, range(COUNT), lambda: {"dp": {"pending": [], "done": 0}})
            stack.callback(watcher.stop)
            watcher.everyone_is_here(seats)
            found.append((watcher, group))
        yield found


def test_the_others_ask_nothing_once_they_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Counted()
    with host(store, monkeypatch):
        # How many heartbeats a rank has made, and how many of them it has sent by itself.
        others, beats = range(1, COUNT), Beats(store, 9, "watch/")

        def made(rank: int) -> int:
            told = store.peek(f"watch/told/{rank}")
            return json.loads(told)[0] if told else 0

        store.until(lambda: all(made(rank) >= store.now.beats[rank] + 5 for rank in others))
        store.until(lambda: any(beat.is_told for beat in beats.read(others).values()))


@pytest.mark.parametrize("how", ["leaves", "is kept from the store"])
def test_without_the_teller_each_sends_by_itself(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    store = Counted()
    with host(store, monkeypatch) as ranks:
        store.until(lambda: all(store.now.told[rank] for rank in range(1, COUNT)))
        if how == "leaves":
            ranks[0][0].stop()
        else:
            store.now.refused = (0,)
        before = store.now.beats.copy()
        store.until(lambda: all(store.now.beats[rank] >= before[rank] + 5 for rank in range(1, COUNT)))
        assert all(not group.ended for _, group in ranks)


def test_a_heartbeat_comes_sooner_once_one_has_not_been_told(monkeypatch: pytest.MonkeyPatch) -> None:
    store, advanced = Counted(), list[float]()
    monkeypatch.setattr(Watcher, "advance", lambda watcher, by_s: advanced.append(by_s))
    with host(store, monkeypatch):
        store.until(lambda: all(store.now.told[rank] for rank in range(1, COUNT)))
        store.now.refused = (0,)
        store.until(lambda: len(advanced) > 0)
    assert set(advanced) == {EVERY_S / 2}


def test_a_verdict_reaches_those_who_ask_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Counted()
    with host(store, monkeypatch) as ranks:
        store.until(lambda: all(store.now.told[rank] for rank in range(1, COUNT)))
        place = ranks[0][0].place
        verdict = Verdict("dp", GroupAbortedError("enough"))
        Log(place, 9, lambda verdict: None).settle(verdict, "dp", tuple(range(COUNT)))
        for _, group in ranks:
            assert group.has_ended.wait(PATIENCE_S)
            assert "enough" in str(group.ended[0])


@pytest.mark.parametrize("answer", [b"", b"nonsense", b"-1 00", b"99999 " + b"00" * 16, b"0 " + b"0" * 32])
def test_a_page_that_is_none_leaves_each_to_itself(answer: bytes) -> None:
    before = len(os.listdir("/proc/self/fd"))
    member = HostBeats(1, range(COUNT), lambda rank: os.getpid())
    member.has_told([answer], 0)
    assert member.hand_over(1, b"[1]") is None
    assert member.to_ask() == []
    assert member.at_hand(range(COUNT)) == {}
    assert len(os.listdir("/proc/self/fd")) == before


def test_another_memory_of_the_teller_is_not_written_to() -> None:
    other = os.memfd_create("rankwise-board")
    try:
        os.write(other, bytes(1 << 14))
        member = HostBeats(1, range(COUNT), lambda rank: os.getpid())
        member.has_told([b"%d " % other + b"00" * 16], 0)
        assert member.hand_over(1, b"[1]") is None
        assert os.pread(other, 1 << 14, 0) == bytes(1 << 14)
    finally:
        os.close(other)
