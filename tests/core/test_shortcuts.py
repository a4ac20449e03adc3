"""The shortcuts that a communicator may offer: which calls are handed to them, and that nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise.backends import API_VERSION, IN_THREADS, BackendSpec
from rankwise.backends.fast_calls import Caller, Shortcuts
from rankwise.backends.registry import registry
from rankwise.groups.world import current
from rankwise_local import LocalCommunicator, register_local
from rankwise_local.communicator import CAPABILITIES

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
    (communicator,) = group.communicators()  # type: ignore[union-attr]
    group.any_lane("barrier")  # a group has shortcuts from its first call on
    yield communicator
    dist.destroy_process_group()
    register_local()  # the true one again


ONE, OTHER = np.ones(2), np.zeros(2)

#: What the calls are made with, which is also what is handed over, but that a reduce op comes before a root there.
CALLS: dict[str, tuple[Any, ...]] = {
    "all_reduce": (ONE, SUM),
    "broadcast": (ONE, 0),
    "reduce": (ONE, 0, SUM),
    "barrier": (),
    "all_gather": ([OTHER], ONE),
    "all_gather_single": (OTHER, ONE),
    "gather": (ONE, [OTHER], 0),
    "scatter": (OTHER, [ONE], 0),
    "reduce_scatter": (OTHER, [ONE], SUM),
    "reduce_scatter_single": (OTHER, ONE, SUM),
    "all_to_all": ([OTHER], [ONE]),
    "all_to_all_single": (OTHER, ONE),
}
HANDED = {**CALLS, "reduce": (ONE, SUM, 0)}
each_call = pytest.mark.parametrize("name", CALLS)


def call(name: str, **more: Any) -> Any:
    return getattr(dist, name)(*CALLS[name], **more)


def same(asked: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    return len(asked) == len(wanted) and all(a is b or a == b for a, b in zip(asked, wanted, strict=True))


@each_call
def test_a_plain_call_is_handed_to_the_shortcut_and_nowhere_else(offering: Offering, name: str) -> None:
    assert call(name) is None
    (asked,) = offering.asked
    assert same(asked, (name, *HANDED[name], None))
    assert current().recorder.entries() == []  # noting it is the shortcut's business, and this one does not


@each_call
def test_a_call_that_the_shortcut_does_not_take_goes_the_general_way(offering: Offering, name: str) -> None:
    offering.takes = False
    call(name)
    assert [asked[0] for asked in offering.asked] == [name]
    assert [entry.op for entry in current().recorder.entries()] == [name.removesuffix("_single")]


@each_call
def test_a_shortcut_is_handed_the_time_out_of_a_call(offering: Offering, name: str) -> None:
    call(name, timeout=5.0)
    assert same(offering.asked[0], (name, *HANDED[name], 5.0))


@each_call
def test_no_shortcut_is_asked_for_an_asynchronous_call(offering: Offering, name: str) -> None:
    call(name, async_op=True).wait()
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
    (communicator,) = group.communicators()  # type: ignore[union-attr]
    assert not hasattr(communicator, "asked")
    for asked in ([], ["all_reduce"]):
        dist.all_reduce(ONE, group=group)
        assert [name for name, *_ in communicator.asked] == asked
    assert [entry.op for entry in current().recorder.entries()] == ["all_reduce"]


def test_a_destroyed_group_has_none(offering: Offering) -> None:
    group = dist.new_group([0])
    dist.destroy_process_group(group)
    with pytest.raises(ValueError, match="destroyed"):
        dist.all_reduce(ONE, group=group)
