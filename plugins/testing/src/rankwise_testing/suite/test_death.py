"""A rank that dies takes nobody with it into a hang."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

import pytest

import rankwise as dist
from rankwise.errors import DistError, DistTimeoutError, PeerDiedError
from rankwise_testing.suite.arrays import same
from rankwise_testing.suite.expect import begun, error_of, host, numbers, settled, still_usable
from rankwise_testing.suite.plugin import Kit, needs

_SOON_S = 5.0


@needs("all_reduce")
def test_the_survivors_of_a_dead_rank_are_told_soon(kit: Kit) -> None:
    _needs_deaths(kit)
    *survivors, dead = kit.run_doomed(3, 2, survive)
    assert dead is None
    assert any("2" in text for text in survivors), f"nobody names the dead rank 2: {survivors}"
    if not kit.has_no_store:
        assert survivors[0] == survivors[1], f"the survivors were told different things: {survivors}"


def survive() -> str:
    _meet()
    if dist.get_rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    error = error_of(DistError, settled, dist.all_reduce, numbers(1))
    took = time.monotonic() - begin
    assert not isinstance(error, DistTimeoutError), error
    assert took < _SOON_S, f"it took {took:.1f} s"
    again = error_of(DistError, settled, dist.all_reduce, numbers(1))
    assert str(again) == str(error), "a later call fails for another reason"
    return str(error) if isinstance(error, PeerDiedError) else ""


@needs("all_reduce", "shrink")
def test_the_survivors_of_a_dead_rank_form_a_smaller_group(kit: Kit) -> None:
    _needs_deaths(kit)
    kit.run_doomed(3, 1, shrink)


def shrink() -> None:
    _meet()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    error_of(DistError, settled, dist.all_reduce, numbers(1))
    group = dist.shrink_group([1], shrink_flags=dist.SHRINK_ABORT)
    assert group.ranks == (0, 2)
    still_usable(group)


@needs("send", "recv")
def test_a_death_that_a_backend_acts_on_takes_nothing_from_the_living(kit: Kit) -> None:
    """What had come from the dead rank is received, and messages of the others go on, before and after it is known."""
    kit.on_host_only("what a GPU waits for cannot be withdrawn")
    _needs_deaths(kit)
    kit.run_doomed(3, 2, outlive)


def outlive() -> None:
    rank, group = dist.get_rank(), dist.group.WORLD
    assert group is not None
    (communicator,) = group.communicators()
    told, acts = threading.Event(), communicator.peer_died
    answers: list[bool] = []

    def noted(dead: int, error: DistError) -> bool:
        answers.append(acts(dead, error))
        told.set()
        return answers[-1]

    communicator.peer_died = noted  # type: ignore[method-assign, assignment]
    if rank == 2:
        for i in range(3):
            for peer in (0, 1):
                dist.send(numbers(i, i), peer)
        for peer in (0, 1):
            dist.recv(numbers(-1), peer)
        os.kill(os.getpid(), signal.SIGKILL)
    across = numbers(-1)
    pending = begun(dist.irecv(across, 1 - rank))  # what waits as the rank dies goes on waiting
    dist.recv(numbers(-1, -1), 2)
    dist.send(numbers(0), 2)
    if not told.wait(_SOON_S) or not all(answers):
        return  # the group was given up, as the contract allows
    for i in (1, 2):
        array = numbers(-1, -1)
        dist.recv(array, 2)
        same(array, host(i, i))
    begun(dist.isend(numbers(7 + rank), 1 - rank)).wait()
    pending.wait(_SOON_S)
    same(across, host(7 + 1 - rank))
    array = numbers(-1)
    work = begun(dist.irecv(array, 1 - rank))
    begun(dist.isend(numbers(rank), 1 - rank)).wait()
    work.wait(_SOON_S)
    same(array, host(1 - rank))
    error = error_of(DistError, dist.recv, numbers(0), 2)
    assert "2" in str(error), f"the dead rank 2 is not named: {error}"


def _needs_deaths(kit: Kit) -> None:
    if kit.in_threads:
        pytest.skip("ranks that share a process die together")
    if kit.spec.runtime is not None and kit.lacks("shrink"):
        pytest.skip("the launcher of the backend's runtime ends the job with the first rank that dies")


def _meet() -> None:
    """Let all ranks take part in something; the others may still be at it when one is done, and dies."""
    with suppress(PeerDiedError):
        still_usable()
