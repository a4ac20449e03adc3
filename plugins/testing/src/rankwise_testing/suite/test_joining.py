"""Processes that do not form one world are all told so, in the same words; none of them is left waiting."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic

import pytest

import rankwise as dist
from rankwise.backends import Capabilities, Communicator, Context
from rankwise.errors import DistError, DistTimeoutError, RendezvousError
from rankwise.kits import PrefixStore, Store, registry
from rankwise_testing.suite.expect import error_of, until
from rankwise_testing.suite.place import JoinPlan
from rankwise_testing.suite.plugin import Kit

_TIMEOUT_S = 1.0
#: Far longer than it takes to hear of a failure, and how long that may take.
_LONG_S, _SOON_S = 60.0, 5.0
#: How many groups are tried in vain.
_TRIES = 4


@pytest.fixture(autouse=True)
def _ranks_meet_in_a_store(kit: Kit) -> None:
    if kit.spec.runtime is not None:
        pytest.skip("the backend's runtime tells each process its rank, and knows who there is")


@pytest.mark.parametrize("rank", [0, 1])
def test_two_processes_that_claim_one_rank_are_named_to_all(kit: Kit, rank: int) -> None:
    text = _of_all(kit.run_outside(3, claim, rank))
    assert f"two processes claim rank {rank}" in text
    assert text.count(f"rank {rank} (host ") == 2, text


def claim(meeting: JoinPlan, rank: int, claimed: int) -> str:
    return str(_refused(meeting, claimed if rank == 2 else rank))


def test_world_sizes_that_disagree_are_named_to_all(kit: Kit) -> None:
    text = _of_all(kit.run_outside(3, miscount))
    assert "3 for rank " in text, text
    assert "4 for rank 2 " in text, text


def miscount(meeting: JoinPlan, rank: int) -> str:
    return str(_refused(replace(meeting, size=4) if rank == 2 else meeting, rank))


def test_a_rank_that_does_not_come_is_named_to_all_that_do(kit: Kit) -> None:
    *texts, nothing = kit.run_outside(3, stay_away)
    assert nothing is None
    text = _of_all(texts)
    assert "rank 2 of 3 did not come" in text, text


def stay_away(meeting: JoinPlan, rank: int) -> str | None:
    if rank == 2:
        return None
    error = error_of(DistTimeoutError, replace(meeting, timeout_s=_TIMEOUT_S).join, rank)
    assert not dist.is_initialized()
    return str(error)


def test_a_rank_that_cannot_make_its_communicator_is_told_to_all_at_once(kit: Kit) -> None:
    for text, took_s in kit.run_outside(3, cannot, kit.spec.name):
        assert "rank 1" in text, text
        assert "no such cable" in text, text
        assert took_s < _SOON_S, f"told after {took_s:.1f} s: {text}"


def cannot(meeting: JoinPlan, rank: int, backend: str) -> tuple[str, float]:
    def fail(context: Context) -> None:
        raise OSError("no such cable")

    return _broken(meeting, rank, backend, fail, _LONG_S)


def test_a_rank_that_stands_still_as_it_makes_its_communicator_is_named(kit: Kit) -> None:
    told = kit.run_outside(3, stand_still, kit.spec.name)
    for rank in (0, 2):
        text, took_s = told[rank]
        assert "timed out" in text, text
        assert re.search(r"ranks? (\d+, )*1\b", text), text  # perhaps with others, which wait for it too
        assert took_s < _TIMEOUT_S + _SOON_S, f"told after {took_s:.1f} s: {text}"


def stand_still(meeting: JoinPlan, rank: int, backend: str) -> tuple[str, float]:
    def wait(context: Context) -> None:
        time.sleep(_TIMEOUT_S + _SOON_S)  # until the others have given it up
        raise OSError("too late")

    return _broken(meeting, rank, backend, wait, _TIMEOUT_S)


@pytest.mark.parametrize("way", ["late", "refused"])
def test_a_group_that_cannot_be_made_ends_in_time_and_leaves_nothing(kit: Kit, way: str) -> None:
    """What `create` of the others has opened by then is closed, and none of them is left in it."""
    for rank, (names, descriptors) in enumerate(kit.run_outside(3, try_in_vain, kit.spec.name, way)):
        if rank != 1 and not kit.in_threads:
            assert not names, f"each of {_TRIES} groups that could not be made leaves threads behind: {names}"
            assert descriptors < _TRIES, f"{_TRIES} groups that could not be made leave {descriptors} descriptors"


def try_in_vain(meeting: JoinPlan, rank: int, backend: str, way: str) -> tuple[list[str], int]:
    """Make a group in vain several times, and return which threads and how many descriptors that has left."""
    store = meeting.outside()

    def fail(context: Context) -> None:
        if way == "late":  # until the others have given it up
            store.wait([f"{number} given up by {peer}" for peer in (0, 2)], _TIMEOUT_S + 2 * _SOON_S)
        raise OSError("no such cable")

    threads, descriptors = set(threading.enumerate()), 0
    for number in range(_TRIES):
        if number == 1:  # the first try starts what the process keeps
            threads, descriptors = set(threading.enumerate()), _descriptors()
        place = replace(meeting, where=_again(meeting, number))
        _, took_s = _broken(place, rank, backend, fail, _TIMEOUT_S)
        if rank != 1:
            assert took_s < _TIMEOUT_S + _SOON_S, f"`create` took {took_s:.1f} s, and had {_TIMEOUT_S:g} s"
            store.set(f"{number} given up by {rank}", "")
    with suppress(AssertionError):  # what is just ending is not left behind
        until(lambda: not set(threading.enumerate()) - threads and _descriptors() <= descriptors, "the end", 2.0)
    return [thread.name for thread in set(threading.enumerate()) - threads], _descriptors() - descriptors


def _again(meeting: JoinPlan, number: int) -> Store | str | None:
    where = meeting.where
    return PrefixStore(f"try {number}", where) if isinstance(where, Store) else f"{where}-{number}"


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_options_of_no_kind_that_it_knows_are_refused(kit: Kit) -> None:
    """The program that gives them believes to have set something."""
    kit.run_outside(1, give_options)


def give_options(meeting: JoinPlan, rank: int) -> None:
    for number, options in enumerate((object(), 17, "fast", ["fast"])):
        place = replace(meeting, where=_again(meeting, number))
        error = error_of((TypeError, ValueError), partial(place.join, rank), pg_options=options)
        assert "options" in str(error), f"the refusal does not say what it is about: {error}"
        assert not dist.is_initialized()


def _broken(
    meeting: JoinPlan, rank: int, backend: str, instead: Callable[[Context], None], timeout_s: float
) -> tuple[str, float]:
    """Join a world of the backend where rank 1 does something else in `create`; return the error and when it came."""
    spec = registry.get(backend)

    def create(context: Context) -> Communicator:
        if context.rank == 1:
            instead(context)
        return spec.create(context)

    name = backend + "_broken"
    table = Capabilities(name, dict(spec.capabilities.devices))
    # A backend keeps its word also where the core does not watch over it.
    registry.register(replace(spec, name=name, capabilities=table, create=create, attends=True), replace=True)
    began = monotonic()
    there = replace(meeting, backend=meeting.backend.replace(backend, name), timeout_s=timeout_s)
    error = error_of(DistError, there.join, rank)
    assert not dist.is_initialized()
    return f"{type(error).__name__}: {error}", monotonic() - began


def _refused(meeting: JoinPlan, rank: int) -> RendezvousError:
    error = error_of(RendezvousError, meeting.join, rank)
    assert not dist.is_initialized()
    return error


def _of_all(texts: list[str]) -> str:
    """Return what all ranks were told, which must be the same."""
    assert len(set(texts)) == 1, f"the ranks were told different things: {texts}"
    return texts[0]
