"""Messages in records: which send belongs to which receive, who waited for whom, and who was the cause of it."""

from __future__ import annotations

import random
import re
import time
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import rankwise as dist
from rankwise_testing import RankPool
from rankwise_tools.recordings.arrivals import NOTABLE_NS
from rankwise_tools.recordings.blame import causes, delays, most_waited_for
from rankwise_tools.recordings.messages import History, Message, Side, matched
from rankwise_tools.recordings.records import load
from rankwise_tools.timelines.waiting import waited_for

MS = 1_000_000
RANKS = 4
SEEDS = range(40)


# ---------------------------------------------------------------------- random programs with known truth


class Program(NamedTuple):
    """What ranks have noted of a program, with the truth."""

    sides: dict[int, list[Side]]
    #: For each receive, by rank and number: the rank that sent, and the number of the send.
    sent: dict[tuple[int, int], tuple[int, int]]
    #: Likewise, for how long the program waited for the send to begin.
    waited_ns: dict[tuple[int, int], int]


class Machine:
    """Ranks that send and receive in a time of their own."""

    def __init__(self, seed: int, slow: int | None = None, lag: int = 1) -> None:
        self.random = random.Random(seed)
        self.slow, self.lag = slow, lag
        self.now = dict.fromkeys(range(RANKS), 1)
        self.took_ns = 0 if slow is not None else 50
        self.program = Program({rank: [] for rank in range(RANKS)}, {}, {})
        self.under_way: dict[tuple[int, int, int], deque[Side]] = defaultdict(deque)

    def run(self, steps: int) -> Program:
        for step in range(steps):
            for rank in range(RANKS):
                self.compute(rank)
                for peer in self.peers(rank):
                    self.send(rank, peer, self.random.randrange(2))
            if step % self.lag == self.lag - 1:
                for rank in self.now:
                    self.receive(rank)
        for rank in self.now:
            self.receive(rank)
        return self.program

    def compute(self, rank: int) -> None:
        if self.slow is None:
            self.now[rank] += self.random.randrange(MS)
        else:
            self.now[rank] += MS if rank == self.slow else 0

    def peers(self, rank: int) -> list[int]:
        others = [(rank - 1) % RANKS, (rank + 1) % RANKS]
        return others if self.slow is not None else self.random.choices(others, k=3)

    def send(self, rank: int, peer: int, tag: int) -> None:
        blocks = self.random.random() < 0.5
        side = self.note(rank, "send" if blocks else "isend", peer, tag, asked=self.now[rank] if blocks else 0)
        self.under_way[rank, peer, tag].append(side)

    def receive(self, rank: int) -> None:
        """Receive all that is under way to a rank, by all the ways there are."""
        coming = [
            (key[0], key[2], sent) for key, queue in sorted(self.under_way.items()) if key[1] == rank for sent in queue
        ]
        for key, queue in self.under_way.items():
            if key[1] == rank:
                queue.clear()
        whose = [(peer, tag) for peer, tag, _ in coming]
        begun = [(self.now[rank], peer, tag) for peer, tag in whose]
        for (began_ns, peer, tag), (_, _, sent) in zip(begun, coming, strict=True):
            asked_ns, blocks = self.now[rank], self.random.random() < 0.3
            there_ns = sent.began_ns + self.took_ns
            self.now[rank] = max(asked_ns, there_ns)
            number = len(self.program.sides[rank])
            self.note(rank, "recv" if blocks else "irecv", peer, tag, asked_ns if blocks else began_ns, asked_ns)
            self.program.sent[rank, number] = peer, sent.number
            self.program.waited_ns[rank, number] = max(0, sent.began_ns - asked_ns)

    def note(self, rank: int, op: str, peer: int, tag: int, began: int = 0, asked: int = 0) -> Side:
        mine = self.program.sides[rank]
        side = Side(len(mine), op, f"x.py:{rank}", peer, tag, began or self.now[rank], asked, self.now[rank])
        mine.append(side)
        if self.slow is None:
            self.now[rank] += self.random.randrange(1, 20)
        return side


def histories(program: Program, **more: Any) -> dict[int, History]:
    """Return what all ranks know at the end."""
    until_ns = 1 + max(side.ended_ns for sides in program.sides.values() for side in sides)
    return {rank: History(sides, until_ns, **more) for rank, sides in program.sides.items()}


def wrong(program: Program, found: list[Message]) -> list[Message]:
    """Return the messages whose send is that of another."""
    return [m for m in found if program.sent[m.target, m.receive.number] != (m.source, m.send.number)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lag", [1, 3])
def test_each_receive_finds_its_send_and_how_long_it_was_waited_for(seed: int, lag: int) -> None:
    program = Machine(seed, lag=lag).run(30)
    found = matched(histories(program))
    assert len(found) == len(program.sent)
    assert not wrong(program, found)
    waited_ns = {(each.rank, each.number): each.to_ns - each.from_ns for each in delays(found)}
    assert waited_ns == {key: ns for key, ns in program.waited_ns.items() if ns}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_record_without_its_beginning_gives_no_receive_another_send(seed: int) -> None:
    program, lost = Machine(seed).run(60), random.Random(seed)
    kept = {
        rank: history._replace(sides=history.sides[lost.choice([0, 1, 20, 90]) :])
        for rank, history in histories(program).items()
    }
    found = matched(kept)
    assert not wrong(program, found)
    there = {(rank, side.number) for rank, history in kept.items() for side in history.sides}
    known = {key for key, sent in program.sent.items() if key in there and sent in there}
    waited = {key for key in known if program.waited_ns[key] >= NOTABLE_NS}
    assert waited <= {(each.target, each.receive.number) for each in found} <= known


def _began_before(until_ns: int, side: Side) -> bool:
    return side.began_ns < until_ns


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_written_down_half_way_gives_no_receive_another_send(seed: int) -> None:
    """Each rank writes its record at a time of its own, as on a signal, and has lost the beginning."""
    program, when = Machine(seed).run(60), random.Random(seed)
    kept = {}
    for rank, history in histories(program).items():
        until_ns = int(history.until_ns * when.uniform(0.6, 0.9))
        begun = takewhile(partial(_began_before, until_ns), history.sides)
        sides = [s._replace(ended_ns=s.ended_ns if s.ended_ns < until_ns else 0) for s in begun]
        kept[rank] = history._replace(sides=sides[when.choice([0, 30]) :], until_ns=until_ns)
    found = matched(kept)
    assert not wrong(program, found)
    sends = {(rank, side.number) for rank, history in kept.items() for side in history.sides}
    waited = {
        (rank, side.number)
        for rank, history in kept.items()
        for side in history.sides
        if program.waited_ns.get((rank, side.number), 0) >= NOTABLE_NS
        and program.sent[rank, side.number] in sends
        and 0 < side.ended_ns < kept[program.sent[rank, side.number][0]].until_ns
    }
    assert waited
    assert waited <= {(each.target, each.receive.number) for each in found}


@pytest.mark.parametrize("seed", SEEDS)
def test_what_fails_or_tells_no_sender_is_left_out(seed: int) -> None:
    program, chance = Machine(seed).run(30), random.Random(seed)
    kept = histories(program)
    unknown: set[int] = set()
    for rank, history in kept.items():
        sides = list(history.sides)
        place = next(i for i, side in enumerate(sides) if not side.sends and chance.random() < 0.2)
        sides[place] = sides[place]._replace(peer=None)
        unknown.add(sides[place].number)
        # A receive that was withdrawn stands among the others, and has got nothing.
        numbered = [*sides[:10], sides[place]._replace(ended_ns=0), *sides[10:]]
        kept[rank] = history._replace(sides=[side._replace(number=i) for i, side in enumerate(numbered)])
    found = matched(kept)
    assert found
    moved = {rank: (lambda n: n if n < 10 else n - 1) for rank in kept}
    for each in found:
        number, send = moved[each.target](each.receive.number), moved[each.source](each.send.number)
        assert program.sent[each.target, number] == (each.source, send)


@pytest.mark.parametrize("slow", range(RANKS))
def test_who_waits_for_one_that_waits_waits_for_the_cause(slow: int) -> None:
    """One rank computes; all that others wait is for it, however far away they are."""
    program = Machine(slow, slow).run(20)
    found = matched(histories(program))
    held = causes(delays(found))
    assert sum(each.ns for each in held) == sum(program.waited_ns.values()) > 0
    assert {each.cause for each in held} == {slow}
    assert {each.delay.rank for each in held} == set(range(RANKS)) - {slow}
    named = most_waited_for(held, span_ns=1)
    assert named is not None
    assert (named.rank, named.late_ns) == (slow, MS)
    assert re.search(rf"for its i?send at x.py:{slow}$", named.sentence(len(found), "default"))


def test_where_all_are_late_now_and_then_nobody_is_named() -> None:
    found = matched(histories(Machine(1).run(100)))
    assert most_waited_for(causes(delays(found)), span_ns=1) is None


@pytest.mark.parametrize("error_ns", [0, 10, None])
def test_clocks_of_other_machines_are_as_good_as_they_are_known(error_ns: int | None) -> None:
    program = Machine(3).run(40)
    kept = histories(program, error_ns=error_ns)
    kept[0] = kept[0]._replace(machine="other")
    whole = matched(kept)
    assert not wrong(program, whole)
    assert len(whole) == len(program.sent), "whole records need no clock"
    apart = [each for each in whole if 0 in (each.source, each.target)]
    assert bool(delays(apart)) == (error_ns is not None)
    assert delays([each for each in whole if each not in apart])
    kept[0] = kept[0]._replace(sides=kept[0].sides[50:])
    left = matched(kept)
    assert not wrong(program, left)
    assert any(0 in (each.source, each.target) for each in left) == (error_ns is not None)


def side(op: str, number: int, began_ns: int, ended_ns: int, asked_ns: int = 0) -> Side:
    return Side(number, op, f"{op}.py:1", 0 if "recv" in op else 1, 0, began_ns, asked_ns, ended_ns)


@pytest.mark.parametrize(
    ("send", "receive", "told"),
    [
        (side("isend", 0, 50, 51), side("recv", 0, 10, 60, 10), [(1, 0, 10, 50)]),
        (side("isend", 0, 50, 51), side("irecv", 0, 10, 60, 20), [(1, 0, 20, 50)]),
        (side("isend", 0, 50, 51), side("irecv", 0, 10, 90, 89), []),  # it had come long before
        (side("isend", 0, 50, 51), side("irecv", 0, 10, 60), []),  # nobody has waited
        (side("isend", 0, 50, 51), side("recv", 0, 10, 49, 10), [(1, 0, 10, 49)]),  # noted after it was sent
        (side("send", 0, 10, 60, 10), side("recv", 0, 50, 61, 50), [(0, 1, 10, 50)]),
        (side("isend", 0, 10, 60, 20), side("irecv", 0, 50, 61, 60), [(0, 1, 20, 50)]),
        (side("send", 0, 10, 12, 10), side("recv", 0, 50, 51, 50), []),  # it did not wait for the receiver
        (side("send", 0, 10, 60, 10), side("recv", 0, 5, 61, 5), [(1, 0, 5, 10)]),  # what follows takes its time
    ],
)
def test_only_the_time_in_which_the_other_had_not_come_is_waiting(
    send: Side, receive: Side, told: list[tuple[int, int, int, int]]
) -> None:
    found = delays(matched({0: History([send], 100), 1: History([receive], 100)}))
    assert [(each.rank, each.peer, each.from_ns, each.to_ns) for each in found] == told


# ---------------------------------------------------------------------- programs that have really run

LATE_S, STEPS, SLOW = 0.08, 5, 2
#: A message of which the sender waits for the receiver.
LONG = 1 << 19


def ends(from_slow: bool) -> tuple[int, int]:
    return (SLOW, 1) if from_slow else (1, SLOW)


def by_calls(send: Callable[[], Any], receive: Callable[[], Any], from_slow: bool = True) -> None:
    source, target = ends(from_slow)
    if dist.get_rank() == source:
        send()
    elif dist.get_rank() == target:
        receive()


def around() -> tuple[int, int]:
    return (dist.get_rank() - 1) % RANKS, (dist.get_rank() + 1) % RANKS


def batch(group: Any) -> None:
    left, right = around()
    came, gone = np.zeros(9), np.ones(9)
    messages = [dist.P2POp(dist.irecv, came, left, group), dist.P2POp(dist.isend, gone, right, group)]
    for work in dist.batch_isend_irecv(messages):
        work.wait()


def neighbours(group: Any) -> None:
    works: list[Any] = [dist.irecv(np.zeros(9), peer, group) for peer in around()]
    works += [dist.isend(np.ones(9), peer, group) for peer in around()]
    for work in works:
        work.wait()


def early(group: Any) -> None:
    """Receive what was asked for early, and waited for only when it had come: the other group has waited."""
    signal = None if group.group_desc == "early" else group
    if dist.get_rank() == SLOW:
        dist.send(np.ones(9), 1, group)
        dist.send(np.ones(9), 1, signal)
    elif dist.get_rank() == 1:
        work = dist.irecv(np.zeros(9), SLOW, group)
        dist.recv(np.zeros(9), SLOW, signal)
        assert work is not None
        work.wait()


def waited(work: Any) -> None:
    work.wait()


#: What each way calls in a group; the operation in which somebody waits, and to which rank 2 comes late.
WAYS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "recv": (
        lambda g: by_calls(lambda: dist.send(np.ones(9), 1, g), lambda: dist.recv(np.ones(9), 2, g)),
        "recv",
        "send",
    ),
    "recv from anyone": (
        *(
            lambda g: by_calls(lambda: dist.send(np.ones(9), 1, g), lambda: dist.recv(np.ones(9), group=g)),
            "recv",
            "send",
        ),
    ),
    "irecv": (
        lambda g: by_calls(lambda: dist.send(np.ones(9), 1, g), lambda: waited(dist.irecv(np.ones(9), 2, g))),
        *("irecv", "send"),
    ),
    "irecv from anyone": (
        lambda g: by_calls(lambda: dist.send(np.ones(9), 1, g), lambda: waited(dist.irecv(np.ones(9), group=g))),
        *("irecv", "send"),
    ),
    "send": (
        lambda g: by_calls(
            lambda: dist.send(np.ones(LONG), 2, g), lambda: dist.recv(np.ones(LONG), 1, g), from_slow=False
        ),
        *("send", "recv"),
    ),
    "isend": (
        lambda g: by_calls(
            lambda: waited(dist.isend(np.ones(LONG), 2, g)), lambda: dist.recv(np.ones(LONG), 1, g), from_slow=False
        ),
        *("isend", "recv"),
    ),
    "sendrecv": (
        lambda g: dist.sendrecv(np.ones(9), around()[1], np.ones(9), around()[0], g),
        *("recv", "isend"),
    ),
    "batch": (batch, "irecv", "isend"),
    "neighbours": (neighbours, "irecv", "isend"),
    "halos": (
        lambda g: dist.grid((RANKS,), True, g).exchange_halos(np.ones(9), 1, async_op=True).wait(),
        *("irecv", "isend"),
    ),
    "early": (early, "", ""),
}


def all_ways() -> None:
    dist.init_process_group("gloo", timeout=60)
    warm = dist.new_group(list(range(RANKS)), group_desc="warm")
    for call, _, _ in WAYS.values():
        dist.barrier()  # who receives from anyone takes no message of the next way
        call(warm)  # the first call imports what it needs, and some ranks take longer for that than others
    for way, (call, _, _) in WAYS.items():
        group = dist.new_group(list(range(RANKS)), group_desc=way)
        for _ in range(STEPS):
            dist.barrier()
            if dist.get_rank() == SLOW:
                time.sleep(LATE_S)
            call(group)
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what is said of each group of a program that receives by all ways."""
    pytest.importorskip("rankwise_gloo_tcp")
    folder: Path = tmp_path_factory.mktemp("records")
    with RankPool(RANKS, env={"RANKWISE_TRACE_DIR": str(folder)}) as pool:
        pool.run(all_ways)
    sentences = waited_for(load(str(folder)))
    return {found[1]: each for each in sentences if (found := re.search(r"messages of group '(.*?)'", each))}


@pytest.mark.parametrize("way", [way for way in WAYS if way != "early"])
def test_who_comes_late_to_a_message_is_named_with_the_line(said: dict[str, str], way: str) -> None:
    _, waiting, late = WAYS[way]
    told = re.fullmatch(
        rf"rank {SLOW} was waited for: it held up (\d+) of \d+ messages of group '{way}', by ([\d.]+) ms at the "
        rf"median, (\d+) ms in all; ranks? [\d, ]+ waited in {waiting} at test_messages.py:\d+ for its {late} at "
        rf"test_messages.py:\d+",
        said[way],
    )
    assert told, said[way]
    # On a busy machine others come late too, now and then, and so the wait for this one is shorter, or none.
    assert int(told[1]) >= STEPS - 2
    assert float(told[2]) > 0.5 * LATE_S * 1e3


def test_a_receive_that_is_begun_early_and_waited_for_late_is_no_waiting(said: dict[str, str]) -> None:
    assert "early" not in said
    assert "default" in said, "its signal was waited for"
