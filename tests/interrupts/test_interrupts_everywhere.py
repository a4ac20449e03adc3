"""Some of the points at which calls can be interrupted; `everywhere.py` goes through as many as it is told."""

from __future__ import annotations

import functools
import inspect
import random
import time
from collections.abc import Callable
from importlib.util import find_spec

import everywhere
import numpy as np
import pytest

import rankwise as dist
from rankwise.calls import check
from rankwise.groups.world import current
from rankwise_testing import RankPool, run_ranks

WAYS = ("shm", "python", "tcp") if find_spec("rankwise_native") else ("python", "tcp-python")


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupted_call_has_done_nothing_or_ends_its_group(way: str) -> None:
    seed = random.randrange(1 << 30)
    tallies = everywhere.try_way(way, 120, seed, everywhere.cases_of(way), seconds=10, most_wrong=1)
    assert all(tally.wrong is None for tally in tallies), tallies
    assert any(tally.given_up for tally in tallies)
    assert any(tally.went_on for tally in tallies)


@pytest.mark.parametrize(("way", "points"), [("stores", 300), ("beginnings", 40)])
def test_an_interrupted_store_or_beginning_may_be_tried_again(way: str, points: int) -> None:
    seed = random.randrange(1 << 30)
    tallies = everywhere.try_way(way, points, seed, everywhere.cases_of(way), seconds=10, most_wrong=1)
    assert all(tally.wrong is None for tally in tallies), tallies
    assert any(tally.went_on for tally in tallies)


def given_up_early() -> str:
    """Rank 0 gives a group up before rank 1 has made it."""
    dist.init_process_group("gloo", timeout=20)
    if dist.get_rank() == 1:
        whole = dist.ProcessGroup.__init__

        def late(self: dist.ProcessGroup, *args: object) -> None:
            whole(self, *args)  # type: ignore[arg-type]
            # The other rank's verdict is heard on a thread of rankwise's own.
            watcher, until = current().watcher, time.monotonic() + 10
            while not watcher._early and time.monotonic() < until:
                time.sleep(0.01)

        dist.ProcessGroup.__init__ = late  # type: ignore[method-assign, assignment]
    group = dist.new_group(timeout=15)
    try:
        if dist.get_rank() == 0:
            dist.abort_process_group(group)
        dist.all_reduce(np.ones(3), group=group)
    except dist.GroupAbortedError as error:
        said = str(error)
    dist.destroy_process_group(group)
    dist.barrier()
    dist.destroy_process_group()
    return said


def test_a_group_that_is_given_up_before_a_rank_has_made_it_ends_there_too() -> None:
    first, second = run_ranks(given_up_early, 2, env={"RANKWISE_GLOO_TRANSPORT": "tcp"})
    assert first == second


def aborted_by_a_pickle() -> list[str]:
    """A pickle that cannot be read is no interrupt."""
    dist.init_process_group("gloo", timeout=20)
    said = []
    for _ in range(2):
        found: list[object] = [None, None]
        try:
            dist.all_gather_object(found, Unreadable(), pickle=True)
        except dist.CodecError as error:
            said.append(str(error))
    dist.all_reduce(np.ones(3))
    dist.destroy_process_group()
    return said


class Unreadable:
    """What cannot be made anew from its pickle."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return _fail, ("no",)


def _fail(text: str) -> None:
    raise LookupError(text)


def test_what_a_pickle_raises_ends_no_group() -> None:
    with RankPool(2) as pool:
        assert all(len(said) == 2 and "LookupError" in said[0] for said in pool.run(aborted_by_a_pickle))


class Stop(BaseException):
    """What a signal's handler raises."""


def _of_objects(group: dist.ProcessGroup) -> list[Callable[[], object]]:
    root, found = dist.get_rank() == 0, [None, None]
    return [
        lambda: dist.all_gather_object(found, 1, group),
        lambda: dist.gather_object(1, found if root else None, 0, group),
        lambda: dist.broadcast_object_list([1], 0, group),
        lambda: dist.scatter_object_list([None], [1, 2] if root else None, 0, group),
        lambda: dist.recv_object_list([None], 1, group) if root else dist.send_object_list([1], 0, group),
        lambda: dist.send_object_list([1], 1, group) if root else dist.recv_object_list([None], 0, group),
        lambda: dist.all_reduce_coalesced([np.ones(2), np.ones(3)], group=group),
        lambda: dist.all_gather_coalesced([[np.ones(1), np.ones(1)]] * 2, [np.ones(1)] * 2, group),
    ]


def interrupted_in_the_last_part() -> list[str]:
    """Rank 1 is interrupted while it checks the arguments of the last of several calls that a call is made of."""
    dist.init_process_group("gloo", timeout=20)
    checked, raise_at = 0, 0

    def checking(whole: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(whole)
        def checks(*args: object, **more: object) -> object:
            nonlocal checked
            checked += 1
            if checked == raise_at:
                return exec("raise error", {"__name__": check.__name__, "error": Stop()})
            return whole(*args, **more)

        return checks

    for name, value in vars(check).copy().items():
        if inspect.isfunction(value) and value.__module__ == check.__name__:
            setattr(check, name, checking(value))
    said = []
    for number in range(len(_of_objects(dist.new_group()))):
        checked, raise_at = 0, 0
        _of_objects(dist.new_group())[number]()
        group = dist.new_group()
        if dist.get_rank() == 1:
            checked, raise_at = 0, checked
        try:
            _of_objects(group)[number]()
            dist.all_reduce(np.ones(1), group=group)
            said.append("went on")
        except Stop:
            try:
                dist.all_reduce(np.ones(1), group=group)
                said.append("went on")
            except dist.GroupAbortedError:
                said.append("given up")
        except dist.GroupAbortedError:
            said.append("given up")
        checked, raise_at = 0, 0
    dist.barrier()
    dist.destroy_process_group()
    return said


def test_a_call_of_several_parts_that_is_interrupted_in_the_last_ends_its_group() -> None:
    # Compiled parts check their arguments in C.
    assert run_ranks(interrupted_in_the_last_part, 2, env={"RANKWISE_NATIVE": "off"}) == [["given up"] * 8] * 2
