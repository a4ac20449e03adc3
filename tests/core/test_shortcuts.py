"""The shortcuts that a communicator may offer: which calls are handed to them, and that nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise.backends import API_VERSION, BackendSpec
from rankwise.backends.fast_calls import Caller, Shortcuts
from rankwise.backends.registry import registry
from rankwise.groups.world import current
from rankwise.testing.local import CAPABILITIES, IN_THREADS, LocalCommunicator, register_local

SUM = dist.ReduceOp.SUM


class Offering(LocalCommunicator):
    """Notes what its shortcuts are called with, and says that they have done it if `takes` is set."""

    takes = True

    def shortcuts(self, group: Caller) -> Shortcuts:
        self.asked: list[tuple[Any, ...]] = []

        def shortcut(name: str) -> Callable[..., Any]:
            def call(*args: Any) -> Any:
                self.asked.append((name, *args))
                return (0 if self.takes else None) if name == "recv" else self.takes

            return call

        return Shortcuts(**{field.name: shortcut(field.name) for field in fields(Shortcuts)})


@pytest.fixture
def offering() -> Iterator[Offering]:
    """The communicator of a group of one."""
    registry.register(BackendSpec("local", API_VERSION, CAPABILITIES, Offering, launch=IN_THREADS), replace=True)
    dist.init_process_group("local", rank=0, world_size=1, store=dist.HashStore())
    group = current().default
    assert group is not None
    (communicator,) = group.communicators()
    assert isinstance(communicator, Offering)
    group.any_lane("barrier")  # a group has shortcuts from its first call on
    yield communicator
    dist.destroy_process_group()
    register_local()  # the true one again


ONE, OTHER = np.ones(2), np.zeros(2)

CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "all_reduce": (dist.all_reduce, (ONE, SUM), (ONE, SUM)),
    "broadcast": (dist.broadcast, (ONE, 0), (ONE, 0)),
    "reduce": (dist.reduce, (ONE, 0, SUM), (ONE, SUM, 0)),
    "all_gather": (dist.all_gather, ([OTHER], ONE), ([OTHER], ONE)),
    "all_gather_single": (dist.all_gather_single, (OTHER, ONE), (OTHER, ONE)),
    "reduce_scatter": (dist.reduce_scatter, (OTHER, [ONE], SUM), (OTHER, [ONE], SUM)),
    "reduce_scatter_single": (dist.reduce_scatter_single, (OTHER, ONE, SUM), (OTHER, ONE, SUM)),
    "all_to_all": (dist.all_to_all, ([OTHER], [ONE]), ([OTHER], [ONE])),
    "all_to_all_single": (dist.all_to_all_single, (OTHER, ONE), (OTHER, ONE)),
    "barrier": (dist.barrier, (), ()),
}


def same(asked: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    return len(asked) == len(wanted) and all(a is b or a == b for a, b in zip(asked, wanted, strict=True))


@pytest.mark.parametrize("name", CALLS)
def test_a_plain_call_is_handed_to_the_shortcut_and_nowhere_else(offering: Offering, name: str) -> None:
    function, args, handed = CALLS[name]
    assert function(*args) is None
    ((asked, *given),) = offering.asked
    assert asked == name
    assert same(tuple(given), (*handed, None))
    assert current().recorder.entries() == []  # noting it is the shortcut's business, and this one does not


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_the_shortcut_does_not_take_goes_the_general_way(offering: Offering, name: str) -> None:
    offering.takes = False
    function, args, _ = CALLS[name]
    function(*args)
    assert [asked[0] for asked in offering.asked] == [name]
    assert [entry.op for entry in current().recorder.entries()] == [name.removesuffix("_single")]


@pytest.mark.parametrize("name", CALLS)
def test_a_shortcut_is_handed_the_time_out_of_a_call(offering: Offering, name: str) -> None:
    function, args, handed = CALLS[name]
    function(*args, timeout=5.0)
    assert same(offering.asked[0], (name, *handed, 5.0))


@pytest.mark.parametrize("name", CALLS)
def test_no_shortcut_is_asked_for_an_asynchronous_call(offering: Offering, name: str) -> None:
    function, args, _ = CALLS[name]
    function(*args, async_op=True).wait()
    assert offering.asked == []


def test_messages_are_handed_over_with_global_ranks(offering: Offering) -> None:
    dist.send(ONE, 0, tag=3)
    assert dist.recv(OTHER, tag=4) == 0
    assert same(offering.asked[0], ("send", ONE, 0, 3))
    assert same(offering.asked[1], ("recv", OTHER, None, 4))


def test_messages_to_group_ranks_go_the_general_way(offering: Offering) -> None:
    with pytest.raises(ValueError, match="never return"):
        dist.send(ONE, group_dst=0)
    assert offering.asked == []


def test_a_group_has_them_made_by_its_first_call_which_goes_the_general_way(offering: Offering) -> None:
    group = dist.new_group([0])
    assert isinstance(group, dist.ProcessGroup)
    (communicator,) = group.communicators()
    assert isinstance(communicator, Offering)
    assert not hasattr(communicator, "asked")
    for asked in ([], ["all_reduce"]):
        dist.all_reduce(ONE, group=group)
        assert [name for name, *_ in communicator.asked] == asked
    assert [entry.op for entry in current().recorder.entries()] == ["all_reduce"]


def test_a_destroyed_group_has_none(offering: Offering) -> None:
    group = dist.new_group([0])
    assert isinstance(group, dist.ProcessGroup)
    dist.destroy_process_group(group)
    with pytest.raises(ValueError, match="destroyed"):
        dist.all_reduce(ONE, group=group)
