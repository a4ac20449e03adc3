"""From no group to a world and back, many times, leaving nothing behind."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

import rankwise as dist
from rankwise.kits import ProcessGroup
from rankwise_testing.suite.expect import error_of, numbers, still_usable, until
from rankwise_testing.suite.place import JoinPlan
from rankwise_testing.suite.plugin import Kit, needs

pytestmark = needs("all_reduce")

_LIVES, _ROUNDS = 12, 2


def test_a_world_may_be_made_and_destroyed_many_times(kit: Kit) -> None:
    kit.run_outside(3, many_lives)


def many_lives(meeting: JoinPlan, rank: int) -> None:
    for _ in range(_LIVES):
        assert not dist.is_initialized()
        meeting.join(rank)
        assert (dist.get_rank(), dist.get_world_size()) == (rank, meeting.size)
        still_usable()
        dist.destroy_process_group()


def test_what_is_there_is_not_made_again_and_what_is_gone_not_destroyed(kit: Kit) -> None:
    kit.run_outside(2, twice)


def twice(meeting: JoinPlan, rank: int) -> None:
    error_of(ValueError, dist.all_reduce, numbers(1))
    meeting.join(rank)
    error_of(ValueError, meeting.join, rank)
    still_usable()
    dist.destroy_process_group()
    error_of(ValueError, dist.destroy_process_group)
    error_of(ValueError, dist.all_reduce, numbers(1))


def test_destroying_the_world_destroys_its_groups_and_finishes_what_was_issued(kit: Kit) -> None:
    if reason := kit.lacks("async"):
        pytest.skip(reason)
    kit.run_outside(2, all_at_once)


def all_at_once(meeting: JoinPlan, rank: int) -> None:
    meeting.join(rank)
    group = dist.new_group()
    assert isinstance(group, ProcessGroup)
    arrays = [numbers(i) for i in range(10)]
    works = [dist.all_reduce(array, group=group, async_op=True) for array in arrays]
    dist.destroy_process_group()
    assert all(work.is_success() for work in works), "what was issued was not finished"
    error_of(ValueError, dist.all_reduce, numbers(1), group=group)


def test_nothing_is_left_behind(kit: Kit) -> None:
    if kit.in_threads:
        pytest.skip("the ranks share one process, whose threads and descriptors come and go with them")
    for rounds in kit.run_outside(2, grown):
        text = "; then ".join(f"from {before} to {after}, new are {new}" for before, after, new in rounds)
        # What other groups of the process open late grows once, what lives leave behind each time.
        grew = [not _no_more(after, before) for before, after, _ in rounds]
        assert not all(grew), f"threads, descriptors and files grew in {_LIVES} lives {text}"


def grown(meeting: JoinPlan, rank: int) -> list[tuple[tuple[int, ...], tuple[int, ...], list[str]]]:
    def live() -> None:
        meeting.join(rank)
        group = dist.new_group()
        still_usable(group)
        dist.destroy_process_group()

    with _temporary_files_apart():
        for _ in range(3):  # caches and lazily started threads of the process
            live()
        return [_after_some(live) for _ in range(_ROUNDS)]


def _after_some(live: Callable[[], None]) -> tuple[tuple[int, ...], tuple[int, ...], list[str]]:
    """Return how much of each kind there is before and after some lives, and what is new."""
    before, known = _counts(), _names()
    for _ in range(_LIVES):
        live()
    with suppress(AssertionError):  # what another thread is just letting go of is not left behind
        until(lambda: _no_more(_counts(), before), "the end", 2.0)
    return before, _counts(), sorted(_names() - known)


def _no_more(counts: tuple[int, ...], before: tuple[int, ...]) -> bool:
    """Tell whether there is no more of any kind; of one there may be less, as a thread of the beginning ends."""
    return all(count <= limit for count, limit in zip(counts, before, strict=True))


@contextmanager
def _temporary_files_apart() -> Iterator[None]:
    """Have this process make temporary files where nobody else makes any."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        patch.setenv("TMPDIR", folder)
        yield


def _counts() -> tuple[int, int, int]:
    return threading.active_count(), len(os.listdir("/proc/self/fd")), len(os.listdir(tempfile.gettempdir()))


def _names() -> set[str]:
    """Return the temporary files, and what the descriptors of this process are, by number and kind."""
    found = {*os.listdir(tempfile.gettempdir())}
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # it was that of the list itself
            found.add(f"{number}: {os.readlink(f'/proc/self/fd/{number}')}")
    return found
