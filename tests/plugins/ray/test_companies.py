"""Groups of the same actors, which share what they can, and those of others, which share nothing with them."""

import time

import pytest
from members import Member

import rankwise as dist
import rankwise_ray
from rankwise_ray.meeting import Joining

PATIENCE_S = 60.0
#: What a group more may take, once there is one; Ray's own come and go.
DESCRIPTORS, OTHERS = 5, 12


def sums(cluster, actors, name):
    return [total for total, _ in cluster.get([a.first_sum.remote(name) for a in actors], timeout=PATIENCE_S)]


@pytest.fixture
def team(cluster):
    made = [Member.remote() for _ in range(4)]
    cluster.get([actor.__ray_ready__.remote() for actor in made], timeout=PATIENCE_S)
    yield made
    for actor in made:
        cluster.kill(actor)


def until_alone(cluster, actors):
    """Wait until actors have no thread of any group."""
    deadline = time.monotonic() + PATIENCE_S
    while any(threads for threads, _, _ in cluster.get([a.resources.remote() for a in actors])):
        assert time.monotonic() < deadline, "a group has left threads"
        time.sleep(0.05)


def test_a_group_more_of_the_same_actors_costs_no_thread(cluster, team):
    pair, count = team[:2], 60
    for name in ("first", "second"):
        rankwise_ray.create_group(pair, name)
        assert sums(cluster, pair, name) == [2, 2]
    before = cluster.get([a.costs.remote() for a in pair])
    for number in range(count):
        rankwise_ray.create_group(pair, f"more {number}")
        assert sums(cluster, pair, f"more {number}") == [2, 2]
    after = cluster.get([a.costs.remote() for a in pair])
    for (threads, descriptors), (threads_then, descriptors_then) in zip(before, after, strict=True):
        assert threads_then <= threads + OTHERS < threads + count, (before, after)
        assert descriptors_then <= descriptors + DESCRIPTORS * count, (before, after)
    for name in ["first", *(f"more {number}" for number in range(count))]:
        rankwise_ray.destroy_group(pair, name)
    assert sums(cluster, pair, "second") == [2, 2]
    rankwise_ray.destroy_group(pair, "second")
    until_alone(cluster, pair)


def test_groups_of_other_actors_or_in_another_order_are_apart(cluster, team):
    a, b, c, d = team
    groups = {"abc": [a, b, c], "abd": [a, b, d], "cba": [c, b, a], "once more": [a, b, c], "dba": [d, b, a]}
    for name, actors in groups.items():
        rankwise_ray.create_group(actors, name)
    for name, actors in groups.items():
        assert sums(cluster, actors, name) == [len(actors)] * len(actors)
        ranks = [rank for rank, _, _ in cluster.get([actor.state.remote(name) for actor in actors])]
        assert ranks == list(range(len(actors)))
    for name in ("abd", "dba"):
        rankwise_ray.destroy_group(groups.pop(name), name)
    cluster.kill(d)
    for name, actors in groups.items():
        assert sums(cluster, actors, name) == [3, 3, 3]
        rankwise_ray.destroy_group(actors, name)
    until_alone(cluster, [a, b, c])


def test_actors_that_leave_one_after_the_other_begin_again(cluster, team):
    pair = team[:2]
    for turn in range(4):
        rankwise_ray.create_group(pair, f"turn {turn}")
        assert sums(cluster, pair, f"turn {turn}") == [2, 2]
        cluster.get(pair[turn % 2].destroy.remote(f"turn {turn}"))  # and so has no other group
        rankwise_ray.create_group(pair, f"between {turn}")
        assert sums(cluster, pair, f"between {turn}") == [2, 2]
        cluster.get(pair[1 - turn % 2].destroy.remote(f"turn {turn}"))
        rankwise_ray.destroy_group(pair, f"between {turn}")
    until_alone(cluster, pair)


def test_ranks_that_do_not_come_are_named():
    joining = Joining("team", 0, 3, create=None, place="here")
    store = dist.HashStore()
    store.set("offer/2", "")
    with pytest.raises(dist.DistTimeoutError, match="group 'team': ranks 1 of 3 have not come in time"):
        joining._agree(store, {}, time.monotonic() + 0.2)
