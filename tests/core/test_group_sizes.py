"""A backend that makes groups of some sizes, or on one host: others are refused on all ranks, before it is asked."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from tests.threads import run_local

import rankwise as dist
from rankwise.backends.capability import Capabilities, counted
from rankwise.backends.cells import Why
from rankwise.backends.declaration import BackendSpec
from rankwise.backends.registry import registry
from rankwise.groups import handshake
from rankwise_local import LocalCommunicator
from rankwise_local.communicator import CAPABILITIES


def registered(name: str, **limits: range) -> Iterator[list[int]]:
    """Register a backend with limits; yield the sizes of the groups that it was asked for."""
    asked = []

    def create(context):
        asked.append(context.size)
        return LocalCommunicator(context)

    registry.register(BackendSpec(name, 1, Capabilities(name, CAPABILITIES.devices, **limits), create))
    yield asked
    registry.unregister(name)


@pytest.fixture
def pairs() -> Iterator[list[int]]:
    """Give a backend for pairs alone."""
    yield from registered("pairs", sizes=range(2, 3))


@pytest.fixture
def near() -> Iterator[list[int]]:
    """Give a backend for ranks that share a host."""
    yield from registered("near", hosts=range(1, 2))


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Give what has ranks that meet from now on be on hosts of their own."""
    numbers = itertools.count()
    return lambda: monkeypatch.setattr(handshake, "process_space", lambda: f"host {next(numbers)}")


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
    for words in ("backend 'pairs': its groups are of 2 ranks, not of 3", "backends that could: gloo"):
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


def test_ranks_that_share_a_host_are_served_and_others_refused_on_every_rank(near, apart):
    assert run_local(2, dist.get_rank, backend="near", timeout=20) == [0, 1]
    apart()
    near.clear()
    with pytest.raises(dist.UnsupportedOperationError, match="its groups are on 1 host, not on 3"):
        run_local(3, dist.barrier, backend="near", timeout=20)
    assert near == []


def test_only_the_hosts_of_the_members_count(near, apart):
    def make() -> str:
        dist.barrier()
        if dist.get_rank() == 0:
            apart()
        dist.barrier()
        group = dist.new_group([1], backend="near")
        if dist.get_rank() == 1:
            dist.barrier(group)
        said = refusal(dist.new_group, [0, 1], None, "near")
        dist.barrier()
        return said

    first, second, other = run_local(3, make, backend="local", timeout=20)
    assert first == second == other
    assert "not on 2" in first


def test_a_question_may_name_hosts(near):
    assert dist.supports("all_reduce", "cpu", backend="near")
    assert dist.supports("all_reduce", "cpu", backend="near", hosts=1)
    assert not dist.supports("all_gather_object", "cpu", backend="near", hosts=2)
    answer = dist.capabilities("near").ask("all_reduce", "cpu", hosts=2)["near"]
    assert (answer.why, answer.reason) == (Why.HOSTS, "its groups are on 1 host, not on 2")
    assert "near: groups on 1 host" in str(dist.capabilities("near"))
    near_alone = next(iter(dist.capabilities("near")))
    assert near_alone.digest() != Capabilities("near", CAPABILITIES.devices).digest()
    assert Capabilities.from_dict("near", near_alone.to_dict()).hosts == range(1, 2)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        *((range(1, 2), "1 rank"), (range(2, 3), "2 ranks"), (range(1, 5), "1 to 4 ranks")),
        *((range(2, 7, 2), "2, 4, 6 ranks"), (range(2, 1 << 31), "2 ranks or more")),
    ],
)
def test_sizes_are_told_in_words(sizes, text):
    assert counted(sizes, "rank") == text
