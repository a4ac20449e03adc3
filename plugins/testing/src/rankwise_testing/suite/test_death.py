"""A rank that dies takes nobody with it into a hang."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import pytest

import rankwise as dist
from rankwise.errors import DistError, DistTimeoutError, PeerDiedError
from rankwise_testing.suite.expect import error_of, has_no_store, numbers, settled, still_usable
from rankwise_testing.suite.plugin import Kit, needs

_SOON_S = 5.0


@needs("all_reduce")
def test_the_survivors_of_a_dead_rank_are_told_soon(kit: Kit) -> None:
    if kit.in_threads:
        pytest.skip("ranks that share a process die together")
    if kit.spec.runtime is not None and kit.lacks("shrink"):
        pytest.skip("the launcher of the backend's runtime ends the job with the first rank that dies")
    *survivors, dead = kit.run_doomed(3, 2, survive)
    assert dead is None
    assert any("2" in text for text in survivors), f"nobody names the dead rank 2: {survivors}"
    if not kit.run_alone(1, has_no_store)[0]:
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
    if kit.in_threads:
        pytest.skip("ranks that share a process die together")
    kit.run_doomed(3, 1, shrink)


def shrink() -> None:
    _meet()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    error_of(DistError, settled, dist.all_reduce, numbers(1))
    group = dist.shrink_group([1], shrink_flags=dist.SHRINK_ABORT)
    assert group.ranks == (0, 2)
    still_usable(group)


def _meet() -> None:
    """Let all ranks take part in something; the others may still be at it when one is done, and dies."""
    with suppress(PeerDiedError):
        still_usable()
