"""A backend that makes groups of some sizes alone: others are refused on all ranks alike, before it is asked."""

from collections.abc import Iterator

import pytest
from tests.threads import run_local

import rankwise as dist
from rankwise.backends.capability import Capabilities, Why, ranks_text
from rankwise.backends.declaration import BackendSpec
from rankwise.backends.registry import registry
from rankwise_local import LocalCommunicator
from rankwise_local.communicator import CAPABILITIES


@pytest.fixture
def pairs() -> Iterator[list[int]]:
    """Register a backend for pairs alone; yield the sizes of the groups that it was asked for."""
    asked = []

    def create(context):
        asked.append(context.size)
        return LocalCommunicator(context)

    table = Capabilities("pairs", CAPABILITIES.devices, range(2, 3))
    registry.register(BackendSpec("pairs", 1, table, create))
    yield asked
    registry.unregister("pairs")


def refusal(make, *args):
    with pytest.raises(dist.UnsupportedOperationError) as caught:
        make(*args)
    return str(caught.value)


def make_others() -> list[str]:
    """Refuse members and others alike; what fits is made."""
    dist.barrier(dist.new_group(backend="pairs"))
    refused = [refusal(dist.new_group, [0], None, "pairs"), refusal(dist.split_group, None, [[0], [1]])]
    dist.barrier()
    return refused


def test_a_world_of_another_size_is_refused_on_every_rank(pairs):
    dist.availability("gloo")  # so that it is known, and can be named
    with pytest.raises(dist.UnsupportedOperationError) as caught:
        run_local(3, dist.barrier, backend="pairs", timeout=20)
    text = str(caught.value)
    for words in ("backend 'pairs' makes groups of 2 ranks, not of 3", "backends that could: gloo"):
        assert words in text
    assert pairs == []


def test_so_is_a_group_of_another_size_for_members_and_others_and_what_is_there_goes_on(pairs):
    first, second = run_local(2, make_others, backend="pairs", timeout=20)
    assert first == second
    assert "not of 1" in first[0]
    assert set(pairs) == {2}


def test_a_question_may_name_a_size(pairs):
    assert dist.supports("all_reduce", "cpu", backend="pairs")
    assert dist.supports("all_reduce", "cpu", backend="pairs", size=2)
    assert not dist.supports("all_gather_object", "cpu", backend="pairs", size=3)
    answer = dist.capabilities("pairs").ask("all_reduce", "cpu", size=3)["pairs"]
    assert (answer.why, answer.reason) == (Why.SIZE, "its groups are of 2 ranks, not of 3")
    assert "pairs: groups of 2 ranks" in str(dist.capabilities("pairs"))


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        *((range(1, 2), "1 rank"), (range(2, 3), "2 ranks"), (range(1, 5), "1 to 4 ranks")),
        *((range(2, 7, 2), "2, 4, 6 ranks"), (range(2, 1 << 31), "2 ranks or more")),
    ],
)
def test_sizes_are_told_in_words(sizes, text):
    assert ranks_text(sizes) == text
