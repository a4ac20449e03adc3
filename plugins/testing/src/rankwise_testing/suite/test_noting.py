"""What fails is noted as having failed: it counts as an error, and its entry in the flight recorder has an end."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise.errors import CollectiveMismatchError, DistError
from rankwise.kits import Entry, ProcessGroup, current, unasked
from rankwise_testing.suite.arrays import on_device, plain
from rankwise_testing.suite.expect import begun, error_of, numbers, settled, until
from rankwise_testing.suite.plugin import Kit, needs

#: The second and the third may take a shortcut.
_BEFORE = 3
_TIMEOUT_S = 0.3
#: Elements of a message that its receiver may fetch.
_COUNT = 200_000


@needs("all_reduce", "broadcast", "mismatch")
@pytest.mark.parametrize("async_op", [False, pytest.param(True, marks=pytest.mark.needs("async"))])
def test_a_collective_that_not_all_ranks_make_counts_as_an_error(kit: Kit, async_op: bool) -> None:
    kit.run(2, disagree, async_op)
    kit.run(3, disagree, async_op)


def disagree(async_op: bool) -> None:
    group = dist.new_group(list(range(dist.get_world_size())))
    assert isinstance(group, ProcessGroup)
    first, other = numbers(1), numbers(2)
    for _ in range(_BEFORE):
        settled(dist.all_reduce, first, group=group)
        settled(dist.broadcast, other, 0, group=group)
    calls: list[Callable[..., Any]] = [
        lambda **terms: dist.broadcast(other, 0, group, **terms),
        lambda **terms: dist.all_reduce(first, group=group, **terms),
    ]
    op, call = ("all_reduce", calls[1]) if dist.get_rank() else ("broadcast", calls[0])
    error = error_of(CollectiveMismatchError, begun(call(async_op=True)).synchronize if async_op else call)
    _has_failed(group, op, error)
    settled(dist.all_reduce, first, group=group)
    assert dist.stats(group).operations["all_reduce"].errors == (op == "all_reduce")


@needs("all_reduce", "timeout")
@pytest.mark.parametrize("plain", [True, False])
def test_a_collective_whose_time_is_up_counts_as_an_error(kit: Kit, plain: bool) -> None:
    kit.run_alone(2, too_late, plain)


def too_late(plain: bool) -> None:
    group = dist.new_group([0, 1])
    assert isinstance(group, ProcessGroup)
    for _ in range(_BEFORE):
        settled(dist.all_reduce, numbers(1), group=group)
    if dist.get_rank():
        return
    if plain:
        group.set_timeout(_TIMEOUT_S)
    terms: dict[str, Any] = {} if plain else {"timeout": _TIMEOUT_S}
    error = error_of(DistError, settled, dist.all_reduce, numbers(1), group=group, **terms)
    _has_failed(group, "all_reduce", error)
    assert dist.stats(group).operations["all_reduce"].errors == 1


@needs("send", "recv", "timeout")
@pytest.mark.parametrize("op", ["recv", "irecv"])
def test_a_receive_whose_time_is_up_counts_as_an_error(kit: Kit, op: str) -> None:
    if kit.device != "cpu":
        pytest.skip("what a GPU waits for cannot be withdrawn")
    kit.run_alone(2, unsent, op)


def unsent(op: str) -> None:
    group = dist.new_group([0, 1])
    if dist.get_rank():
        return
    assert isinstance(group, ProcessGroup)
    group.set_timeout(_TIMEOUT_S)
    array = numbers(0)
    call: Callable[..., Any] = dist.recv if op == "recv" else lambda *args: begun(dist.irecv(*args)).wait()
    _has_failed(group, op, error_of(DistError, call, array, 1, group))


@needs("send", "recv")
@pytest.mark.parametrize("is_kept", [True, False])
def test_what_has_ended_is_not_noted_as_pending_though_nobody_asks(kit: Kit, is_kept: bool) -> None:
    kit.run(2, unasked_works, is_kept)


def unasked_works(is_kept: bool) -> None:
    group, other = dist.new_group([0, 1]), 1 - dist.get_rank()
    assert isinstance(group, ProcessGroup)
    works = [dist.irecv(on_device(np.zeros(_COUNT, plain())), other, group) for _ in range(_BEFORE)]
    works += [dist.isend(on_device(np.zeros(_COUNT, plain())), other, group) for _ in range(_BEFORE)]
    if not is_kept:
        works.clear()
    until(lambda: len(_ended(group)) == 2 * _BEFORE, "the end of works that nobody asks")


def _ended(group: ProcessGroup) -> list[Entry]:
    unasked.look()
    entries = [entry for entry in current().recorder.entries() if entry.trail.name == group.name]
    return [entry for entry in entries if entry.ended_ns and entry.op in ("isend", "irecv")]


_WHOM = pytest.mark.parametrize("anyone", [False, pytest.param(True, marks=pytest.mark.needs("any_source"))])


@needs("send", "recv")
@_WHOM
def test_a_receive_is_noted_with_its_sender_and_since_when_the_program_waited(kit: Kit, anyone: bool) -> None:
    kit.run(2, asked_for, anyone)


def asked_for(anyone: bool) -> None:
    group = dist.new_group([0, 1])
    assert isinstance(group, ProcessGroup)
    if dist.get_rank():
        dist.recv(numbers(0), 0, group)
        dist.send(numbers(1), 0, group)
        return
    work = begun(dist.irecv(numbers(0), None if anyone else 1, group))
    dist.send(numbers(1), 1, group)  # only then does the other send
    before_ns = monotonic_ns()
    work.wait()
    (entry,) = (each for each in current().recorder.entries() if each.trail.name == group.name and each.op == "irecv")
    assert entry.detail == (1, 0)
    assert entry.began_ns < before_ns <= entry.asked_ns <= entry.ended_ns <= monotonic_ns(), entry


@needs("send", "recv")
@_WHOM
def test_a_receive_that_was_withdrawn_is_not_noted_as_pending(kit: Kit, anyone: bool) -> None:
    if kit.device != "cpu":
        pytest.skip("what a GPU waits for cannot be withdrawn")
    kit.run(2, withdrawn, anyone)


def withdrawn(anyone: bool) -> None:
    group = dist.group.WORLD
    assert group is not None
    work = begun(dist.irecv(numbers(0), None if anyone else 1 - dist.get_rank(), tag=0))
    if work.cancel():
        assert _last(group).ended_ns
        assert _last(group).error, "it counts as one that has got a message"
    else:  # it goes on then, so it must get something
        dist.send(numbers(1), 1 - dist.get_rank())
        work.wait()


def _has_failed(group: ProcessGroup, op: str, error: BaseException) -> None:
    """Raise unless the group's last operation is noted to have ended with an error of this kind."""
    entry = _last(group)
    assert entry.op == op, entry
    assert entry.ended_ns, f"after {error!r} it is noted as going on: {entry}"
    assert entry.error, f"after {error!r} it is noted as having ended well: {entry}"
    assert dist.stats(group).operations[op].errors >= 1


def _last(group: ProcessGroup) -> Entry:
    unasked.look()
    return [entry for entry in current().recorder.entries() if entry.trail.name == group.name][-1]
