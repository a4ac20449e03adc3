"""What a backend says of itself before it has done anything: its table, and whether it can run here."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

import rankwise as dist
from rankwise.backends import Gauges
from rankwise.kits import Support
from rankwise_testing.suite.arrays import missing_device
from rankwise_testing.suite.expect import still_usable, together
from rankwise_testing.suite.plugin import Kit, needs

#: A program that only lists backends waits for all of them.
_SOON_S = 2.0


def test_a_device_that_is_declared_is_there(kit: Kit) -> None:
    """A cell that depends on hardware or a library is conditional, and its condition does not hold without them."""
    for device in kit.spec.capabilities.usable_devices():
        problem = missing_device(device)
        assert not problem, f"the table offers {device} on this machine, where {problem}; declare it `conditional`"


def test_what_is_conditional_says_on_what_it_depends(kit: Kit) -> None:
    for kind, device in kit.spec.capabilities.devices.items():
        for name, cell in {**device.ops, **device.features}.items():
            if cell.support is Support.CONDITIONAL:
                assert cell.reason, f"{name} on {kind} is conditional, and does not say on what"
                assert cell.holds() in (True, False), f"the condition of {name} on {kind} is no truth value"


def test_it_says_soon_and_always_the_same_whether_it_can_run_here(kit: Kit) -> None:
    begin = time.monotonic()
    answers = [kit.spec.availability() for _ in range(3)]
    took = time.monotonic() - begin
    assert all(answers), "it runs here, and says that it cannot"
    assert took < _SOON_S, f"three answers took {took:.1f} s"


def test_the_variants_name_their_variables(kit: Kit) -> None:
    if not kit.spec.variants:
        pytest.skip("the backend has one way to do its work")
    for name, variables in kit.spec.variants.items():
        assert name, "a variant has no name"
        assert all(isinstance(text, str) for pair in variables.items() for text in pair), variables


@needs("all_reduce")
def test_what_it_tells_commands_of_itself_grows(kit: Kit) -> None:
    """`gauges` is asked by another thread, at any time, and counts up."""
    kit.run(2, count_up)


def count_up() -> None:
    group = dist.group.WORLD
    assert group is not None
    (communicator,) = group.communicators()
    told: list[Gauges] = []
    for _ in range(3):
        still_usable()
        together([lambda: told.append(communicator.gauges())])
    for before, after in pairwise(told):
        for way, nbytes in before.moved_nbytes.items():
            assert after.moved_nbytes[way] >= nbytes >= 0, f"what moved by {way} went from {nbytes} to {after}"
    assert all(count >= 0 for count in told[-1].queued.values()), told[-1]
    assert told[-1].memory_nbytes >= 0, told[-1]
