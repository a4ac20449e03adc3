"""What `supports` says of a public call is what the call does: of every call, on whole tables and partial ones."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.core.asking import CALLS as TRIED
from tests.core.asking import answers_that_are_wrong, asked_of_groups
from tests.threads import run_local

import rankwise as dist
from rankwise.backends.capability import Capabilities
from rankwise.backends.cells import Device, Support, no
from rankwise.backends.declaration import BackendSpec
from rankwise.backends.registry import registry
from rankwise.backends.vocabulary import CALLS, FEATURES, OPS
from rankwise_local import LocalCommunicator
from rankwise_local.communicator import CAPABILITIES
from rankwise_testing import run_ranks

WHOLE = CAPABILITIES.devices["cpu"]


@pytest.fixture
def partial_backend(request) -> Iterator[str]:
    """Register a backend that does not do one thing, or does all for few dtypes."""
    lacks = request.param
    ops, features = dict(WHOLE.ops), dict(WHOLE.features)
    if lacks == "dtypes":
        ops = {op: replace(cell, dtypes=frozenset({"int8", "uint8"})) for op, cell in ops.items()}
    elif lacks == "objects":
        ops = {op: replace(cell, dtypes=frozenset({"float32"})) for op, cell in ops.items()}
    elif lacks in OPS:
        ops |= no(lacks)
    else:
        features |= no(lacks)
    table = Capabilities("partial", {"cpu": Device(ops, features)})
    registry.register(BackendSpec("partial", 1, table, LocalCommunicator))
    yield "partial"
    registry.unregister("partial")


def test_every_public_call_on_a_group_is_tried_and_can_be_asked_about():
    around = {"init_process_group", "destroy_process_group", "new_subgroups_by_enumeration"}
    around |= {"reconfigure", "get_reconfigure_handle", "supports_reconfigure"}  # of other groups: the kit tries these
    assert asked_of_groups() - TRIED.keys() <= around
    assert CALLS.keys() - TRIED.keys() == around
    for name in (*TRIED, *CALLS):
        assert callable(getattr(dist, name))
        assert dist.supports(name, "cpu", backend="local")


@pytest.mark.parametrize("partial_backend", [*OPS, *FEATURES, "dtypes", "objects"], indirect=True)
def test_an_answer_is_what_the_call_does(partial_backend):
    assert run_local(2, answers_that_are_wrong, partial_backend, 40, backend=partial_backend, timeout=30) == [[], []]


@pytest.mark.parametrize("backend", ["gloo", "local"])
def test_so_it_is_of_whole_backends(backend, request):
    if backend == "local":
        assert run_local(2, answers_that_are_wrong, backend, 200, 1, timeout=30) == [[], []]
    else:
        assert run_ranks(of_processes, 2, backend, timeout=60) == [[], []]


def of_processes(backend):
    dist.init_process_group(backend, timeout=30)
    try:
        return answers_that_are_wrong(backend, 200, 2)
    finally:
        dist.destroy_process_group()


def test_how_a_call_is_done_is_told_apart_from_whether_it_is_accepted():
    gloo = dist.capabilities("gloo")["gloo"]
    ways = {name: gloo.ask(name, "cpu").how for name in ("all_reduce", "split_group", "sparse", "coalescing")}
    assert ways == {
        "all_reduce": Support.NATIVE,
        "split_group": Support.DERIVED,
        "sparse": Support.DERIVED,
        "coalescing": None,
    }
    gathers = {"gather": WHOLE.ops["send"], "all_gather": WHOLE.ops["all_gather"]}
    assert [cell.support for cell in gathers.values()] == [Support.NATIVE, Support.DERIVED]
    # The slower of the two that it is made of.
    assert Capabilities("toy", {"cpu": Device(gathers)}).ask("gather_object", "cpu").how is Support.DERIVED
