"""Programs of receives that are posted before their messages come, which test_posted.py runs."""

from __future__ import annotations

import asyncio
import os
import random
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np

import rankwise as dist
from rankwise.basics.recording import Totals

PATIENCE_S = 60.0
#: Nothing, short ones, one that passes in one piece, and those that go in pieces or from memory to memory.
LENGTHS = (0, 1, 1, 100, 5_000, 40_000, 200_000)
TAGS = 2
#: How many messages to come a rank may have posted receives for.
AHEAD = 6


def in_world(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a world of its own."""
    dist.init_process_group("gloo", timeout=PATIENCE_S)
    try:
        return function(*args)
    finally:
        dist.destroy_process_group()


class Line:
    """What one rank receives in one run, against a plan that all ranks have in common."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.pending: dict[int, tuple[Any, np.ndarray[Any, Any]]] = {}

    def post(self, number: int, source: int, tag: int, count: int) -> None:
        array = np.full(count + self.chance.randrange(2), -1)
        self.pending[number] = dist.irecv(array, source, tag=tag), array

    def ended(self, number: int, count: int) -> None:
        """Wait for a message in one of the ways, and look at what has come."""
        work, array = self.pending.pop(number)
        way = self.chance.randrange(6)
        if way == 0:
            until_s = time.monotonic() + PATIENCE_S
            while not work.is_completed():
                assert time.monotonic() < until_s, "it does not end"
        elif way == 1:
            work.get_future().result(PATIENCE_S)
        elif way == 2:
            asyncio.run(_awaited(work))
        work.wait()
        assert work.is_success()
        assert work.nbytes == 8 * count
        assert (array[:count] == number).all()
        assert (array[count:] == -1).all()


async def _awaited(work: Any) -> None:
    await asyncio.wait_for(work, PATIENCE_S)


def lines(seed: int) -> None:
    """Send and receive along a random plan; what a rank waits for is sent by one who has waited for earlier ones."""
    common, chance = random.Random(seed), random.Random(f"{seed} {dist.get_rank()}")
    me, size = dist.get_rank(), dist.get_world_size()
    plan = [
        (*common.sample(range(size), 2), common.randrange(TAGS), common.choice(LENGTHS), common.random() < 0.2)
        for _ in range(60)
    ]
    mine, line, sent = [n for n, message in enumerate(plan) if message[1] == me], Line(chance), []
    posted = 0
    for number, (source, destination, tag, count, meets) in enumerate(plan):
        while posted < len(mine) and (mine[posted] <= number or (chance.random() < 0.5 and posted < AHEAD)):
            line.post(mine[posted], plan[mine[posted]][0], plan[mine[posted]][2], plan[mine[posted]][3])
            posted += 1
        if source == me:
            sent.append(dist.isend(np.full(count, number), destination, tag=tag))
        if destination == me and chance.random() < 0.7:
            for due in chance.sample([n for n in line.pending if n <= number], k=1):
                line.ended(due, plan[due][3])
        if meets:
            total = np.ones(1)
            dist.all_reduce(total)
            assert total[0] == size
    for number in chance.sample(list(line.pending), k=len(line.pending)):
        line.ended(number, plan[number][3])
    for work in sent:
        work.wait()
    dist.barrier()


def many(count: int) -> None:
    """Post many receives, and do something else until the other has sent all: what has come is right."""
    sent = f"sent {count}"
    store = dist.group.WORLD.get_group_store()  # type: ignore[union-attr]
    assert store is not None
    if dist.get_rank() == 0:
        works = [(dist.irecv(array := np.full(5000, -1), 1), array) for _ in range(count)]
        dist.send(np.empty(1), 1)
        began_s = time.monotonic()
        store.get(sent)  # it might compute as well
        assert time.monotonic() - began_s < 1.0
        for number, (work, array) in enumerate(works):
            work.wait()
            assert (array == number).all()
    else:
        dist.recv(np.empty(1), 0)
        for number in range(count):
            dist.send(np.full(5000, number), 0)
        store.set(sent, b"")
    dist.barrier()


def mixed(seed: int) -> None:
    """Post receives from one rank and from anyone, withdraw some, ask about others: each gets the next of its tag.

    Compiled code and the engine keep those that wait in forms of their own; what is rare here has them change over.
    """
    common = random.Random(f"mixed {seed}")
    for _ in range(16):
        rarely = common.choice((0.0, 0.0, 0.1))
        plan = [
            Posted(common.randrange(TAGS), *(common.random() < rarely for _ in range(5)))
            for _ in range(common.choice((2, 4, 12, 60)))
        ]
        taken = [number for number, posted in enumerate(plan) if not posted.withdrawn]
        order = taken if common.random() < 0.5 else common.sample(taken, len(taken))
        waits_first = common.random() < 0.3
        if dist.get_rank() == 0:
            _post(plan, order, waits_first)
        else:
            dist.recv(np.empty(1), 0, tag=TAGS)
            for number in _merged(plan, taken):
                dist.send(np.full(3, number), 0, tag=plan[number].tag)
            dist.send(np.full(3, len(plan)), 0)
        dist.barrier()


class Posted(NamedTuple):
    """What is done with a receive, and right after it was posted."""

    tag: int
    from_anyone: bool
    withdrawn: bool
    asked: bool
    probed: bool
    shown: bool


def _merged(plan: list[Posted], taken: list[int]) -> list[int]:
    """Return in which order messages are sent: any that for each tag is that of their receives."""
    tags = [plan[number].tag for number in taken]
    lines = {tag: iter([number for number in taken if plan[number].tag == tag]) for tag in set(tags)}
    return [next(lines[tag]) for tag in random.Random(0).sample(tags, len(tags))]


def _post(plan: list[Posted], order: list[int], waits_first: bool) -> None:
    works, rooms, last = [], np.full((len(plan), 3), -1), np.empty(3, int)
    for posted, room in zip(plan, rooms, strict=True):
        works.append(dist.irecv(room, None if posted.from_anyone else 1, tag=posted.tag))
        if posted.asked:
            assert not works[0].is_completed()
        if posted.probed:
            assert dist.iprobe(1, tag=posted.tag) is None
        if posted.shown:
            assert "pending" in repr(works[-1])
    for work, posted in zip(works, plan, strict=True):
        assert not posted.withdrawn or work.cancel()
    dist.send(np.empty(1), 1, tag=TAGS)
    if waits_first:  # for what comes after all others
        dist.recv(last, 1)
    for number in order:
        works[number].wait()
    expected = [-1 if posted.withdrawn else number for number, posted in enumerate(plan)]
    assert rooms.tolist() == [[number] * 3 for number in expected]
    if not waits_first:
        dist.recv(last, 1)
    assert (last == len(plan)).all()


def made_twice() -> None:
    """Make the compiled messages of a group again, as a thread may that has found none."""
    from rankwise_gloo_tcp.collectives.compiled import MessagePeer, _Hooks

    group = dist.group.WORLD
    assert group is not None
    made = group.shortcuts.irecv.__self__  # type: ignore[attr-defined]
    peers = [MessagePeer(0, 0, None, None, None, None)] * 2  # type: ignore[arg-type]
    lane = group.any_lane("recv")[0]
    assert type(made)(group.trail, peers, _Hooks(lane, group), True) is made


class Stop(Exception):
    """What a handler of signals raises."""


def interrupted(hook: str) -> float:
    """Return for how long a rank waits again for a message at whose end a handler has raised, in a hook of Python's."""
    from rankwise_gloo_tcp.engine import peers
    from rankwise_gloo_tcp.engine.fast_path import MessageHooks

    where: Any = peers.peer_memory if hook == "read" else MessageHooks
    real, hooks = getattr(where, hook), []

    def raising(*args: Any) -> Any:
        hooks.append(args)
        if len(hooks) == 1:
            raise Stop
        return real(*args)

    setattr(where, hook, raising)
    dist.init_process_group("gloo", timeout=PATIENCE_S)
    took_s = 0.0
    try:
        for _ in range(2):  # compiled code carries out the second
            if dist.get_rank() == 0:
                work = dist.irecv(np.empty(1 << 20), 1)
                future = work.get_future() if hook == "met" else None
                with suppress(Stop, dist.DistError):
                    work.wait()
                began_s = time.monotonic()
                with suppress(dist.DistError):
                    work.wait()
                assert future is None or future.done()
                took_s = max(took_s, time.monotonic() - began_s)
            else:
                with suppress(dist.DistError):
                    dist.isend(np.empty(1 << 20), 0).wait()
    except (dist.DistError, Stop):
        pass  # this is the second message, of a group that has ended
    finally:
        setattr(where, hook, real)
        assert hooks or dist.get_rank() == 1, f"{hook} was not called"
        with suppress(dist.DistError):
            dist.destroy_process_group()
    return took_s


def polled() -> float:
    """Return for how long a rank that only asks at times waits for a message that is sent meanwhile."""
    dist.barrier()
    took_s = 0.0
    if dist.get_rank() == 0:
        work = dist.irecv(np.empty(3), 1)
        began_s = time.monotonic()
        dist.send(np.empty(1), 1)
        while not work.is_completed():
            time.sleep(0.001)
        took_s = time.monotonic() - began_s
    else:
        dist.recv(np.empty(1), 0)
        dist.send(np.empty(3), 0)
    dist.barrier()
    return took_s


def _error(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def endings() -> list[str]:
    """Return how receives end that were posted and whose messages do not come as they should."""
    me, found = dist.get_rank(), []

    # It is withdrawn, and takes no message from the next.
    if me == 0:
        first, room = dist.irecv(np.empty(1), 1), np.empty(1)
        assert first.cancel()
        second = dist.irecv(room, 1)
        dist.send(np.empty(1), 1)
        second.wait()
        assert room[0] == 5
        found.append(_error(first.wait))
    else:
        dist.recv(np.empty(1), 0)
        dist.send(np.full(1, 5.0), 0)
    dist.barrier()

    # A message is too long; one is of another dtype.
    for sent in (np.ones(4), np.ones(1, np.int64)):
        if me == 0:
            work = dist.irecv(np.empty(1), 1)
            dist.barrier()
            found.append(_error(work.wait))
        else:
            dist.barrier()
            dist.send(sent, 0)
        dist.barrier()

    # A receive from anyone was posted before, and gets the first.
    if me == 0:
        anyones, own = np.empty(1), np.empty(1)
        works = dist.irecv(anyones), dist.irecv(own, 1)
        dist.barrier()
        works[1].wait()
        works[0].wait()
        assert (anyones[0], own[0]) == (1, 2)
    else:
        dist.barrier()
        dist.send(np.full(1, 1.0), 0)
        dist.send(np.full(1, 2.0), 0)
    dist.barrier()

    # A probe tells of what no receive has met.
    if me == 0:
        work = dist.irecv(room := np.empty(1), 1)
        assert dist.iprobe(1) is None
        dist.barrier()
        assert dist.probe(1).nbytes == 16
        work.wait()
        assert room[0] == 3
        dist.recv(np.empty(2), 1)
    else:
        dist.barrier()
        dist.send(np.full(1, 3.0), 0)
        dist.send(np.full(2, 4.0), 0)
    dist.barrier()

    # It takes too long, and then the group is aborted.
    group = dist.new_group(timeout=0.3)
    if me == 0:
        late = dist.irecv(np.empty(1), 1, group)
        found.append(_error(late.wait).partition(" (")[0])
        given_up = dist.irecv(np.empty(1), 1, group)
        dist.abort_process_group(group)
        found.append(_error(given_up.wait).partition(":")[0])
    dist.barrier()
    dist.destroy_process_group(group)
    return found


def answers() -> list[Any]:
    """Return what the works of a receive and of a send say of themselves, before and after they end."""
    dist.barrier()
    _answers()  # Python carries out the first messages of a group, and compiled code the others
    return _answers()


def _answers() -> list[Any]:
    said, room, mine = list[Any](), np.zeros(2, np.int32), np.ones(3, np.int32)
    if dist.get_rank() == 0:
        work: Any = dist.irecv(room, 1)
        said += [repr(work), work.is_completed(), work.is_success(), work.exception(), work.nbytes]
        said += [_error(work.source_rank), _error(lambda: work.wait(0.01)).partition(", waiting")[0]]
        work.add_done_callback(lambda of: said.append(of is work))
        dist.barrier()
        said += [work.wait(), work.wait(5), work.wait(timeout=timedelta(seconds=5)), repr(work)]
        said += [work.nbytes, work.count(np.int32), work.source_rank(), work.result() is room, room.tolist()]
        said += [_error(lambda: work.count(np.float64)), work.cancel(), work.exception()]
        said += [work.is_completed(), work.is_success(), work.get_future().result(5) is room]
        quick: Any = dist.irecv(room, 1)
        dist.send(mine, 1)
        said += [quick.wait(), quick.source_rank(), quick.is_completed(), isinstance(quick, dist.Work)]
        said += [asyncio.run(_result(quick)) is room, weakref.ref(quick)() is quick]
        sending: Any = dist.isend(mine, 1)
        said += [sending.wait(), repr(sending), sending.is_completed(), sending.is_success(), sending.nbytes]
        said += [_error(sending.source_rank), sending.result() is mine, sending.synchronize(), sending.cancel()]
        sending.add_done_callback(lambda of: said.append(of is sending))
    else:
        dist.barrier()
        dist.send(np.full(1, 7, np.int32), 0)
        dist.recv(np.empty(3, np.int32), 0)
        dist.send(mine[:2], 0)
        dist.recv(np.empty(3, np.int32), 0)
    dist.barrier()
    return said


async def _result(work: Any) -> Any:
    return await work


def unasked() -> list[int]:
    """Return how many of the receives count as ended, that nobody asks about, before and after their messages come."""
    ended: list[int] = []
    dist.stats()  # from the first on there are figures
    for turn in range(3):  # Python carries out the first messages of a group, and compiled code the others
        rooms = np.empty((2, 3))
        works = [dist.irecv(room, 1, tag=1) for room in rooms] if dist.get_rank() == 0 else []
        if turn == 1:
            works.clear()
        ended += [_ended()] if dist.get_rank() == 0 else []
        dist.barrier()
        if dist.get_rank() == 0:
            dist.recv(np.empty(1), 1)  # before it, two others come
            ended.append(_ended())
        else:
            dist.send(np.zeros(3), 0, tag=1)
            dist.send(np.zeros(3), 0, tag=1)
            dist.send(np.zeros(1), 0)
        dist.barrier()
    return ended


def _ended() -> int:
    dist.stats()  # it looks for those that have
    return int(Totals(*dist.group.WORLD.trail.totals()["irecv"]).ended)  # type: ignore[union-attr]


def parted() -> str:
    """Return how a receive ends whose sender leaves."""
    group = dist.new_group()
    text = ""
    if dist.get_rank() == 0:
        work = dist.irecv(np.empty(1), 1, group)
        dist.barrier()
        text = _error(work.wait)
    else:
        dist.barrier()
    dist.destroy_process_group(group)
    return text


def forked() -> str:
    """Return how a receive ends in the child of a fork; the message comes to the parent."""
    text = ""
    for _ in range(2):  # the first message of a group is never compiled code's
        dist.send(np.empty(1), 1) if dist.get_rank() == 0 else dist.recv(np.empty(1), 0)
        dist.recv(np.empty(1), 1) if dist.get_rank() == 0 else dist.send(np.empty(1), 0)
    if dist.get_rank() == 0:
        room = np.zeros(1)
        work = dist.irecv(room, 1)
        read, write = os.pipe()
        if (pid := os.fork()) == 0:
            os.write(write, _error(lambda: work.wait(5.0)).encode())
            os._exit(0)
        os.close(write)
        dist.send(np.empty(1), 1)
        with os.fdopen(read, "rb") as pipe:
            text = pipe.read().decode()
        os.waitpid(pid, 0)
        work.wait()
        assert room[0] == 7
    else:
        dist.recv(np.empty(1), 0)
        dist.send(np.full(1, 7.0), 0)
    dist.barrier()
    return text
