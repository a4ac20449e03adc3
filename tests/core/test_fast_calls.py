"""What a communicator keeps for each kind of call: one object does all calls of a kind, whichever way they come."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise.backends import API_VERSION, IN_THREADS, BackendSpec, Call, Prepared
from rankwise.backends.registry import registry
from rankwise.basics.deadline import Deadline
from rankwise.groups.world import current
from rankwise_arrays.plans import bound_call
from rankwise_local import LocalCommunicator, register_local
from rankwise_local.communicator import CAPABILITIES

SUM = dist.ReduceOp.SUM


class Doubling:
    """Does a call on one rank: it doubles the array, and notes how it was called."""

    def __init__(self, comm: Keeping, call: Call) -> None:
        self.fingerprint, self._comm = call.fingerprint, comm

    def bind(self, call: Call) -> Any:
        if call.reduce_op is not None:
            return call.array, call.reduce_op
        return None if call.array is None else ([call.array], [])

    def run(self, given: Any, sequence: int, deadline: Deadline) -> None:
        self._comm.ran.append((self.fingerprint.op, sequence, deadline.timeout_s))
        if self._comm.error is not None:
            raise self._comm.error
        if given is not None:
            array = given[0] if isinstance(given[0], np.ndarray) else given[0][0]
            array *= 2


class Keeping(LocalCommunicator):
    """Keeps something for each kind of call."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.made: list[Any] = []
        self.ran: list[tuple[str, int, float]] = []
        self.error: Exception | None = None

    def new_kind(self, call: Call) -> Prepared | None:
        self.made.append(call.kind)
        return Doubling(self, call)


@pytest.fixture
def keeping() -> Iterator[Keeping]:
    """The communicator of a group of one."""
    registry.register(BackendSpec("local", API_VERSION, CAPABILITIES, Keeping, launch=IN_THREADS), replace=True)
    dist.init_process_group("local", rank=0, world_size=1, store=dist.HashStore(), timeout=60.0)
    group = current().default
    (communicator,) = group.communicators()  # type: ignore[union-attr]
    yield communicator
    if dist.is_initialized():
        dist.destroy_process_group()
    register_local()  # the true one again


def test_one_object_does_all_calls_of_a_kind(keeping: Keeping) -> None:
    array = np.ones(3)
    dist.all_reduce(array)
    dist.all_reduce(array)
    dist.all_reduce(array, timeout=5.0)
    dist.all_reduce(array, async_op=True).wait()
    assert len(keeping.made) == 1
    assert keeping.ran == [("all_reduce", n, 5.0 if n == 2 else 60.0) for n in range(4)]
    assert array.tolist() == [16.0] * 3
    entries = [entry for entry in current().recorder.entries() if entry.op == "all_reduce"]
    assert len(entries) == 4
    assert all(entry.ended_ns for entry in entries)


def test_a_fast_call_counts_as_one_made_in_the_programs_line(keeping: Keeping) -> None:
    for _ in range(2):
        dist.barrier()
    assert {entry.code.co_name for entry in current().recorder.entries() if entry.code} == {
        "test_a_fast_call_counts_as_one_made_in_the_programs_line"
    }


@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "barrier"])
def test_calls_that_differ_in_what_matters_are_of_different_kinds(keeping: Keeping, name: str) -> None:
    arrays = [np.ones(3), np.ones((3, 1)), np.ones(3, np.float32)]
    for _ in range(3):
        for array in arrays:
            if name == "barrier":
                dist.barrier()
            elif name == "broadcast":
                dist.broadcast(array, 0)
            else:
                dist.all_reduce(array)
                dist.all_reduce(array, dist.ReduceOp.MAX)
    assert len(keeping.made) == len(set(keeping.made)) == {"barrier": 1, "broadcast": 3, "all_reduce": 6}[name]


def test_kinds_are_forgotten_when_there_are_many_and_when_the_group_ends(keeping: Keeping) -> None:
    for count in range(513):
        dist.broadcast(np.ones(count), 0)
    assert len(keeping.kinds) == 1
    dist.destroy_process_group()
    assert not keeping.kinds


def test_a_failed_group_raises_its_failure_on_every_way(keeping: Keeping) -> None:
    array = np.ones(2)
    dist.all_reduce(array)
    keeping.error = dist.DistBackendError("the cable is out")

    def call(**options: Any) -> None:
        work = dist.all_reduce(array, **options)
        if work is not None:
            work.wait()

    for options in ({}, {"timeout": 5.0}, {"async_op": True}):
        with pytest.raises(dist.DistBackendError, match="the cable is out"):
            call(**options)
    assert len(keeping.ran) == 2


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
def test_a_wrong_time_out_is_refused_before_anything_has_begun(keeping: Keeping, timeout: float) -> None:
    array = np.ones(2)
    for _ in range(2):
        with pytest.raises(ValueError, match="timeout"):
            dist.all_reduce(array, timeout=timeout)
        dist.all_reduce(array)
    assert [ran[1] for ran in keeping.ran] == [0, 1]


@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "barrier"])
def test_a_bound_call_is_the_public_call(keeping: Keeping, name: str) -> None:
    array = np.ones(2)
    given = {"all_reduce": {"tensor": array}, "broadcast": {"tensor": array, "src": 0}, "barrier": {}}
    again = bind(name, **given[name])
    for _ in range(4):
        again()
    assert [(op, number) for op, number, _ in keeping.ran] == [(name, number) for number in range(4)]
    assert array.tolist() == [1.0 if name == "barrier" else 16.0] * 2
    entries = current().recorder.entries()
    assert again.__name__ == "bound"  # and not the public call
    assert {entry.code.co_name for entry in entries if entry.code} == {"test_a_bound_call_is_the_public_call"}
    assert len(entries) == 4
    assert all(entry.ended_ns for entry in entries)


def bind(name: str, **given: Any) -> Any:
    """Return a call that is bound to its arguments, of a group that has shortcuts, as it has made a call."""
    group = dist.group.WORLD
    group.any_lane("barrier")
    function = getattr(dist, name)
    arguments = signature(function).bind(**given)
    arguments.apply_defaults()
    return bound_call(name, arguments.arguments, partial(function, **given))


def test_a_bound_call_takes_the_group_s_time_out_of_that_moment(keeping: Keeping) -> None:
    again, group = bind("barrier"), dist.group.WORLD
    for timeout_s in (60.0, 60.0, 7.0):
        group.set_timeout(timeout_s)
        again()
    assert [timeout_s for _, _, timeout_s in keeping.ran] == [60.0, 60.0, 7.0]
    with_its_own = bind("barrier", timeout=3.0)
    with_its_own()
    assert keeping.ran[-1][2] == 3.0


def test_a_bound_call_is_of_the_kind_that_its_array_is_of_now(keeping: Keeping) -> None:
    array = np.ones(4)
    again = bind("all_reduce", tensor=array)
    for shape in ((4,), (4,), (2, 2), (2, 2), (4,)):
        array.shape = shape
        again()
    assert [kind[3] for kind in keeping.made] == [(4,), (2, 2)]
    array.flags.writeable = False
    with pytest.raises(ValueError, match="tensor"):
        again()
    assert array.ravel().tolist() == [32.0] * 4


def test_a_bound_call_that_fails_ends_as_the_public_call_does(keeping: Keeping) -> None:
    again = bind("barrier")
    again()
    keeping.error = dist.DistBackendError("the cable is out")
    for _ in range(2):
        with pytest.raises(dist.DistBackendError, match="the cable is out"):
            again()
    assert [entry.error != "" for entry in current().recorder.entries()] == [False, True]
    dist.destroy_process_group()
    with pytest.raises(ValueError, match="no default process group"):
        again()


def test_what_is_not_numpys_is_of_no_kind() -> None:
    class Foreign:
        dtype, shape, size = np.dtype(float), (2,), 2

    assert Call("all_reduce", np.ones(2), SUM).kind is not None
    assert Call("all_reduce", Foreign(), SUM).kind is None
