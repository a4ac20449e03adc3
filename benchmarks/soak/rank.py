"""One rank of a program: does its part of each step, and compares."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from random import Random
from typing import Any

import rankwise as dist
from rankwise.groups.process_group import ProcessGroup
from soak import collectives
from soak.arrays import Room, lay_out
from soak.program import Program, Step
from soak.values import dtype_of, part

__all__ = ["perform"]

Finish = Callable[[], None]
#: How soon others notice that a rank has died.
_SOON_S = 6.0
#: Tags of a step; messages of threads have theirs above.
_TAGS, _THREAD_TAGS = 16, 8


def perform(program: Program, rank: int, timeout_s: float) -> None:
    """Run a program as one of its ranks, in a world that has the pool's processes."""
    _Rank(program, rank, timeout_s).run()


class _Rank:
    def __init__(self, program: Program, rank: int, timeout_s: float) -> None:
        self.program, self.rank, self.timeout_s = program, rank, timeout_s
        self.roll = Random(f"{program.seed} on {rank}")
        self.due: dict[int, list[Finish]] = defaultdict(list)
        self.later: dict[int, list[Callable[[], None]]] = defaultdict(list)
        self.groups = [self._new_group(members) for members in program.groups]

    def run(self) -> None:
        last = max([step.at for step in self.program.steps], default=0) + 20
        steps = {step.at: step for step in self.program.steps}
        for at in range(last):
            step = steps.get(at)
            group = None if step is None else self.groups[step.group]
            for begin in self.later.pop(at, ()):  # receives of earlier steps come first in their streams
                begin()
            if step is not None and group is not None:
                self._within(step, lambda: getattr(self, f"_{step.kind}")(step, group))
            finishes = self.due.pop(at, [])
            self.roll.shuffle(finishes)
            for finish in finishes:
                finish()
        for group in reversed(self.groups):
            if group is not None:
                dist.destroy_process_group(group)

    def _within(self, step: Step, call: Finish) -> None:
        """Say in an error which step it comes from."""
        try:
            call()
        except Exception as error:
            if "[step" not in str(error):
                error.args = (f"[step {step.at} {step.kind}] {error}", *error.args[1:])
            raise

    def _finish(self, step: Step, at: int, call: Finish) -> None:
        self.due[at].append(lambda: self._within(step, call))

    def _new_group(self, ranks: tuple[int, ...]) -> ProcessGroup | None:
        if self.rank not in ranks:
            return None
        members = [self.program.members[rank] for rank in ranks]
        group = dist.new_group(members, self.timeout_s, use_local_synchronization=True, sort_ranks=False)
        assert isinstance(group, ProcessGroup)
        return group

    # ------------------------------------------------------------------ collectives

    def _collective(self, step: Step, group: ProcessGroup) -> None:
        async_op = step.what["until"] > step.at or self.roll.random() < 0.3
        work, check = collectives.begin(step.at, group, step.what, self.roll, async_op)

        def finish() -> None:
            if work is not None:
                self._wait(work)
            check()

        self._finish(step, step.what["until"], finish)

    def _wait(self, work: Any) -> None:
        """Wait in one of the ways there are."""
        way = self.roll.randrange(7)
        if way == 0:
            work.result()
        elif way == 1:
            work.get_future().result(2 * self.timeout_s)
        elif way == 2:
            asyncio.run(_awaited(work))
        elif way == 3:
            deadline = time.monotonic() + self.timeout_s
            while not work.is_completed() and time.monotonic() < deadline:
                time.sleep(0.0005)
            work.wait()
        elif way == 4:
            called = threading.Event()
            work.add_done_callback(lambda _: called.set())
            work.wait()
            assert called.wait(self.timeout_s), "the callback was not called"
        else:
            work.wait(*([self.timeout_s] if way == 5 else []))

    # ------------------------------------------------------------------ messages

    def _messages(self, step: Step, group: ProcessGroup) -> None:
        me, late, blocking = dist.get_rank(group), step.what["late"], step.what["blocking"]
        by_stream: dict[tuple[int, int], list[tuple[int, Any]]] = defaultdict(list)
        for number, message in enumerate(step.what["messages"]):
            by_stream[message[0], message[2]].append((number, message))
        for (src, _), stream in self._shuffled(by_stream):
            for number, message in stream:
                if message[1] == me:
                    self._receive(step, group, src, number, message, late)
        sends: dict[tuple[int, int], list[tuple[int, Any]]] = defaultdict(list)
        for number, message in enumerate(step.what["messages"]):
            if message[0] == me:
                sends[message[1], message[2]].append((number, message))
        for _, stream in self._shuffled(sends):
            for number, message in stream:
                self._send(step, group, number, message, late, blocking)

    def _shuffled(self, streams: dict[Any, Any]) -> list[Any]:
        found = list(streams.items())
        self.roll.shuffle(found)
        return found

    def _send(self, step: Step, group: ProcessGroup, number: int, message: Any, late: int, blocking: float) -> None:
        _, dst, tag, dtype, count, _ = message
        array = lay_out(part(dtype, count, step.at, number), self.roll.randrange(5), self.roll)
        work = dist.isend(array, group=group, group_dst=dst, tag=_TAGS * step.at + tag)
        self._finish(step, late, lambda: self._wait(work))

    def _receive(self, step: Step, group: ProcessGroup, src: int, number: int, message: Any, late: int) -> None:
        _, _, tag, dtype, count, at = message
        room = Room(dtype_of(dtype), count, self.roll)
        name = f"message {number} {message}"
        blocks = at > step.at and self.roll.random() < 0.5

        def check() -> None:
            room.check(part(dtype, count, step.at, number), name)

        def begin() -> None:
            terms: dict[str, Any] = {"group": group, "group_src": src, "tag": _TAGS * step.at + tag}
            array = room.shaped(self.roll.randrange(5))
            if blocks:
                dist.recv(array, **terms)
                check()
                return
            work = dist.irecv(array, **terms)

            def finish() -> None:
                self._wait(work)
                check()

            self._finish(step, self.roll.randint(at, late), finish)

        if at > step.at:
            self.later[at].append(lambda: self._within(step, begin))
        else:
            begin()

    def _anyone(self, step: Step, group: ProcessGroup) -> None:
        me, size, what = dist.get_rank(group), dist.get_world_size(group), step.what
        dtype, count, tag = what["dtype"], what["count"], _TAGS * step.at + 5
        works = []
        if me != what["dst"]:
            for i in range(what["each"]):
                array = lay_out(part(dtype, count, step.at, me, i), self.roll.randrange(5), self.roll)
                works.append(dist.isend(array, group=group, group_dst=what["dst"], tag=tag))
        else:
            taken = dict.fromkeys((group.ranks[rank] for rank in range(size) if rank != me), 0)
            for _ in range(what["each"] * (size - 1)):
                room = Room(dtype_of(dtype), count, self.roll)
                source = dist.recv(room.array, group=group, tag=tag)
                sender = dist.get_group_rank(group, source)
                room.check(part(dtype, count, step.at, sender, taken[source]), f"from anyone: rank {sender}")
                taken[source] += 1
        for work in works:
            self._wait(work)

    # ------------------------------------------------------------------ threads, ends

    def _threads(self, step: Step, group: ProcessGroup) -> None:
        """Run lanes at the same time, each with tags and a group of its own."""
        lanes = step.what["lanes"]
        members = self.program.groups[step.group]
        groups = [self._new_group(members) for _ in lanes]
        errors: list[BaseException] = []
        rolls = [Random(self.roll.random()) for _ in lanes]

        def serve(lane: int) -> None:
            try:
                for turn, call in enumerate(lanes[lane]):
                    self._lane(step, group, groups[lane], lane, turn, call, rolls[lane])
            except BaseException as error:  # it is raised below
                errors.append(error)

        threads = [threading.Thread(target=copy_context().run, args=(serve, i), daemon=True) for i in range(len(lanes))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * self.timeout_s)
        if errors:
            raise errors[0]
        assert not any(thread.is_alive() for thread in threads), "threads stand still"
        for own in groups:
            dist.destroy_process_group(own)

    def _lane(self, step: Step, group: Any, own: Any, lane: int, turn: int, call: Any, roll: Random) -> None:
        kind, dtype, count = call
        me, size = dist.get_rank(group), dist.get_world_size(group)
        if kind == "collective":
            what = {"op": "all_gather" if turn % 2 else "broadcast", "dtype": dtype, "count": count, "root": turn % size}
            _, check = collectives.begin(step.at + lane, own, what, roll, False)
            check()
            return
        tag = _TAGS * step.at + _THREAD_TAGS + lane
        right, left = (me + 1) % size, (me - 1) % size
        room = Room(dtype_of(dtype), count, roll)
        array = lay_out(part(dtype, count, step.at, lane, me), 0, roll)
        work = dist.isend(array, group=group, group_dst=right, tag=tag)
        begun = dist.irecv(room.array, group=group, group_src=left, tag=tag)
        begun.wait()
        work.wait()
        room.check(part(dtype, count, step.at, lane, left), f"thread {lane} turn {turn} {call}")

    def _farewell(self, step: Step, group: ProcessGroup) -> None:
        """Send, perhaps meet, and leave; the receiver takes what has come later."""
        members = self.program.groups[step.group]
        own = self._new_group(members)
        assert own is not None
        me, messages = dist.get_rank(own), step.what["messages"]
        for number, (src, dst, _, dtype, count, _) in enumerate(messages):
            if src == me:
                dist.isend(lay_out(part(dtype, count, step.at, number), 0, self.roll), group=own, group_dst=dst)
        if step.what["collective"]:
            dist.barrier(own)
        for number, (src, dst, _, dtype, count, _) in enumerate(messages):
            if dst == me:
                room = Room(dtype_of(dtype), count, self.roll)
                dist.recv(room.array, group=own, group_src=src)
                room.check(part(dtype, count, step.at, number), f"last message {number} {messages[number]}")
        dist.destroy_process_group(own)

    def _death(self, step: Step, group: ProcessGroup) -> None:
        """Let one rank die; the others must hear of it soon, not at their time-out."""
        me = dist.get_rank(group)
        if me == step.what["victim"]:
            if not step.what["idle"]:
                with suppress(dist.DistError):
                    dist.isend(part("u1", 3_000_000, 1), group=group, group_dst=(me + 1) % dist.get_world_size(group))
            os.kill(os.getpid(), signal.SIGKILL)
        begin = time.monotonic()
        try:
            dist.barrier(group)
        except dist.DistTimeoutError:
            raise
        except dist.DistError:
            took = time.monotonic() - begin
            assert took < _SOON_S, f"the death was noticed after {took:.1f} s"
            self.due.clear()
            self.groups = []
            return
        raise AssertionError("a barrier has returned although a rank had died before it")


async def _awaited(work: Any) -> None:
    await work
