"""A group that a signal handler aborts, wherever in the core it has interrupted the program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import pytest
from tests.threads import at_once

import rankwise as dist
import rankwise_local  # noqa: F401  # registers the backend `local`
from rankwise import HashStore
from rankwise.basics.ending import Ending
from rankwise.groups.world import World, use

PATIENCE_S = 10.0
ROOMS = tuple(f"rankwise.{room}." for room in ("basics", "backends", "calls", "collective", "groups", "testing"))


class Interrupted:
    """Runs something with a call in the middle of it: before the n-th line of the core's, on the same thread."""

    def __init__(self, handler: Callable[[], object], line: int) -> None:
        self._handler, self._left = handler, line
        self.reached = False

    def run(self, function: Callable[[], object]) -> None:
        sys.settrace(self._trace)
        try:
            function()
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not f"{frame.f_globals.get('__name__')}.".startswith(ROOMS) or self.reached:
            return None
        if event == "line":
            self._left -= 1
            if self._left < 0:
                self.reached = True
                sys.settrace(None)
                self._handler()
                return None
        return self._trace


def messages() -> None:
    array = np.zeros(3)
    for _ in range(2):
        received, sent = dist.irecv(array, 0), dist.isend(np.ones(3), 0)
        received.add_done_callback(lambda _: None)
        sent.get_future()
        received.wait(PATIENCE_S)
        sent.wait(PATIENCE_S)


def collectives() -> None:
    array = np.zeros(3)
    works = [dist.all_reduce(array, async_op=True) for _ in range(2)]
    for work in works:
        work.add_done_callback(lambda _: None)
    dist.all_reduce(array)
    for work in works:
        work.get_future().result(PATIENCE_S)
    with dist.coalescing():
        dist.broadcast(array, 0)
    dist.barrier()


def once(program: Callable[[], None], line: int) -> tuple[bool, BaseException | None]:
    """Run a program in a world that is aborted before a line; tell whether it came so far, and its error."""
    use(World())
    dist.init_process_group("local", store=HashStore(), rank=0, world_size=1, timeout=PATIENCE_S)
    interrupted, caught = Interrupted(dist.abort_process_group, line), None
    try:
        interrupted.run(program)
    except dist.DistError as error:
        caught = error
    with pytest.raises(dist.GroupAbortedError) if interrupted.reached else nullcontext():
        dist.barrier()
    dist.destroy_process_group()
    return interrupted.reached, caught


def lines(program: Callable[[], None], step: int) -> Iterator[tuple[int, BaseException | None]]:
    line = 0
    while True:
        ((reached, error),) = at_once(partial(once, program), [line], 2 * PATIENCE_S)
        if not reached:
            return
        yield line, error
        line += step


@pytest.mark.parametrize("program", [messages, collectives])
def test_an_abort_in_a_handler_ends_the_group_and_locks_nothing(program: Callable[[], None]) -> None:
    count = 0
    for line, error in lines(program, 3):
        count += 1
        assert error is None or isinstance(error, dist.GroupAbortedError), (line, error)
    assert count > 50  # it was interrupted in many places


@pytest.mark.parametrize("line", range(12))
@pytest.mark.parametrize("what", ["tell", "wait", "then"])
def test_an_end_may_be_told_within_anything_that_is_done_with_it(what: str, line: int) -> None:
    def program(line: int) -> list[object]:
        ending, called = Ending(), list[object]()
        ending.then(lambda: called.append("before"))
        does = {
            "tell": lambda: ending.tell("outer"),
            "wait": lambda: ending.wait(0.05),
            "then": lambda: ending.then(lambda: called.append("within")),
        }[what]
        Interrupted(lambda: ending.tell("handler"), line).run(does)
        ending.tell("last")
        assert ending.wait(PATIENCE_S)
        assert ending.value in ("outer", "handler", "last")
        return called

    assert at_once(program, [line], 2 * PATIENCE_S) == [["before", "within"] if what == "then" else ["before"]]
