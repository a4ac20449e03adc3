"""What Ray's users run into: overlapping groups, threads, dead actors, read-only arrays, groups that come and go."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from members import Member, Threaded, Unaware
from ray.experimental import internal_kv
from ray.util import collective as col

import rankwise_ray
from rankwise_ray import teams

HERE = Path(__file__).parent
PATIENCE_S = 60.0
#: How soon a death is to be known.
SOON_S = 0.5


@pytest.fixture
def fresh(cluster):
    """Make actors that end with the test."""
    made = []

    def make(kind, count):
        new = [kind.remote() for _ in range(count)]
        cluster.get([actor.__ray_ready__.remote() for actor in new], timeout=PATIENCE_S)
        made.extend(new)
        return new

    yield make
    for actor in made:
        cluster.kill(actor)


def sums(cluster, actors, name):
    return [total for total, _ in cluster.get([a.first_sum.remote(name) for a in actors], timeout=PATIENCE_S)]


def keys():
    return [key for key in internal_kv._internal_kv_list(b"group:", namespace=b"rankwise")]


def test_groups_that_overlap(cluster, actors):
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0)]
    for first, second in pairs:
        name = f"{first}-{second}"
        for rank, index in enumerate((first, second)):
            cluster.get(actors[index].init.remote(2, rank, name), timeout=PATIENCE_S)
    for pair in pairs:
        name = "-".join(map(str, pair))
        assert sums(cluster, [actors[i] for i in pair], name) == [2, 2]
        rankwise_ray.destroy_group([actors[i] for i in pair], name)


def test_ranks_in_any_order(cluster, actors):
    rankwise_ray.create_group(actors, "shuffled", ranks=[2, 0, 3, 1])
    tensors = [np.full(3, float(rank)) for rank in (2, 0, 3, 1)]
    found = cluster.get([a.do.remote("broadcast", "shuffled", t, 3) for a, t in zip(actors, tensors, strict=True)])
    assert [float(t[0]) for t in found] == [3] * 4
    rankwise_ray.destroy_group(actors, "shuffled")


def test_two_threads_of_two_actors_make_and_use_two_groups_crosswise(cluster, fresh):
    pair = fresh(Threaded, 2)
    begun = [pair[0].init.remote(2, 0, "a"), pair[1].init.remote(2, 1, "b")]
    cluster.get(begun, timeout=PATIENCE_S)
    uses = [pair[0].add_up_often.remote("a", 200), pair[1].add_up_often.remote("b", 200)]  # which wait for the others
    begun = [pair[1].init.remote(2, 1, "a"), pair[0].init.remote(2, 0, "b")]
    cluster.get(begun, timeout=PATIENCE_S)
    uses += [pair[1].add_up_often.remote("a", 200), pair[0].add_up_often.remote("b", 200)]
    assert cluster.get(uses, timeout=PATIENCE_S) == [2] * 4


def test_a_killed_actor_is_named_by_the_others_soon(cluster, fresh):
    team = fresh(Member, 4)
    rankwise_ray.create_group(team, "mortal")
    assert sums(cluster, team, "mortal") == [4] * 4
    calls = [a.wait_to_be_told.remote("mortal") for a in (team[0], team[1], team[3])]
    time.sleep(0.2)  # they may be there by then or not: both must do
    killed = time.time()
    team[2].die.remote()
    for kind, text, at in cluster.get(calls, timeout=PATIENCE_S):
        assert kind == "PeerDiedError"
        assert text.startswith("rank 2 on ")
        assert at - killed < SOON_S * 4  # and a quarter of that on a machine of its own: benchmarks/ray_compare.py


def test_actors_that_die_leave_the_name_free(cluster, fresh):
    for _ in range(2):
        team = fresh(Member, 2)
        rankwise_ray.create_group(team, "again")
        assert sums(cluster, team, "again") == [2, 2]
        for actor in team:
            cluster.kill(actor)


def test_what_a_killed_rank_0_has_left_is_passed_over(cluster, fresh):
    first, second, third = fresh(Member, 3)
    cluster.get(first.init.remote(2, 0, "stale"))
    until = time.monotonic() + PATIENCE_S
    while not keys() and time.monotonic() < until:
        time.sleep(0.01)
    cluster.kill(first)
    cluster.get(second.init.remote(2, 1, "stale"))
    waiting = second.first_sum.remote("stale")
    cluster.get(third.init.remote(2, 0, "stale"))
    assert cluster.get([waiting, third.first_sum.remote("stale")], timeout=PATIENCE_S)[0][0] == 2
    rankwise_ray.destroy_group([second, third], "stale")


def test_a_group_that_never_comes_about_ends_with_its_destruction(cluster, actors):
    cluster.get([actors[0].init.remote(3, 0, "lonely"), actors[1].init.remote(3, 1, "lonely")])
    cluster.get([a.destroy.remote("lonely") for a in actors[:2]])
    rankwise_ray.create_group(actors, "lonely")
    assert sums(cluster, actors, "lonely") == [4] * 4
    rankwise_ray.destroy_group(actors, "lonely")
    assert not keys()


def left_over(cluster, actors, limits):
    """Return the actors' threads, descriptors and memory once there are no more of the former than `limits` has."""
    until = time.monotonic() + PATIENCE_S
    while True:
        left = cluster.get([a.resources.remote() for a in actors])
        if all(t <= least and d <= most + 2 for (t, d, _), (least, most, _) in zip(left, limits, strict=True)):
            return left
        assert time.monotonic() < until, f"{limits} before, {left} after"
        time.sleep(0.05)


def test_a_hundred_groups_leave_nothing(cluster, fresh):
    # By default threads have up to eight arenas of memory a core, each of which grows before it comes to a rest.
    pair = fresh(Member.options(runtime_env={"env_vars": {"MALLOC_ARENA_MAX": "1", "PYTHONPATH": str(HERE)}}), 2)

    def pass_by(count):
        for number in range(count):
            rankwise_ray.create_group(pair, f"passing {number}")
            assert sums(cluster, pair, f"passing {number}") == [2, 2]
            rankwise_ray.destroy_group(pair, f"passing {number}")

    def hundred(before):
        pass_by(100)
        return left_over(cluster, pair, before)

    pass_by(50)
    before = after = left_over(cluster, pair, [(0, 10_000, 0)] * 2)
    for _ in range(5):  # what is never given back grows in each round; the rest, Ray's too, in some
        grown, after = after, hundred(after)
        assert not keys()
        if all(more - was < 1024 for (_, _, more), (_, _, was) in zip(after, grown, strict=True)):
            return
    pytest.fail(f"KiB: {before} before, {after} after")


def test_declared_groups_need_no_import_in_the_actors(cluster, fresh):
    team = fresh(Unaware, 2)
    col.create_collective_group(team, 2, [0, 1], rankwise_ray.BACKEND, "declared")
    assert cluster.get([a.total.remote("declared") for a in team], timeout=PATIENCE_S) == [2, 2]
    other = fresh(Unaware, 2)
    rankwise_ray.create_group(other, "ours")
    assert cluster.get([a.total.remote("ours") for a in other], timeout=PATIENCE_S) == [2, 2]
    with pytest.raises(RuntimeError):
        rankwise_ray.create_group(team[:1] + other[:1], "ours")  # one of them has such a group
    assert cluster.get([a.total.remote("ours") for a in other], timeout=PATIENCE_S) == [2, 2]


def test_torch_is_loaded_by_nobody(cluster, actors):
    assert cluster.get(actors[0].loaded.remote("torch", "cupy", "rankwise_gloo_tcp")) == ["rankwise_gloo_tcp"]


def test_actors_have_loaded_what_a_group_needs_before_they_begin_one(cluster, fresh):
    wanted = ["rankwise_stores.tcp.server", "rankwise_gloo_tcp.setup.creation", "zmq"]
    assert cluster.get(fresh(Member, 1)[0].loaded.remote(*wanted), timeout=PATIENCE_S) == wanted


def test_unlike_calls_raise_on_all(cluster, actors):
    rankwise_ray.create_group(actors[:2], "unlike")
    calls = [a.do.remote("allreduce", "unlike", np.ones(3 + rank)) for rank, a in enumerate(actors[:2])]
    for call in calls:
        with pytest.raises(RuntimeError, match=r"allreduce|all_reduce"):
            cluster.get(call, timeout=PATIENCE_S)
    assert sums(cluster, actors[:2], "unlike") == [2, 2]
    rankwise_ray.destroy_group(actors[:2], "unlike")


def test_a_dead_actor_fails_create_group_and_frees_the_others(cluster, actors, fresh):
    dead = fresh(Member, 1)
    cluster.kill(dead[0])
    with pytest.raises(cluster.exceptions.RayActorError):
        rankwise_ray.create_group([*actors[:2], dead[0]], "half")
    rankwise_ray.create_group(actors[:2], "half")
    assert sums(cluster, actors[:2], "half") == [2, 2]
    rankwise_ray.destroy_group(actors[:2], "half")


def test_an_actor_that_dies_before_it_has_met_the_others_keeps_nobody(cluster, actors, fresh, monkeypatch):
    mortal, call = fresh(Member, 1)[0], teams._call
    instead = {teams._join: lambda *_: 1.0, teams._wait: lambda *_: os.kill(os.getpid(), 9)}

    def called(actor, function, *args):
        return call(actor, instead.get(function, function) if actor is mortal else function, *args)

    monkeypatch.setattr(teams, "_call", called)
    with pytest.raises(cluster.exceptions.RayActorError):
        rankwise_ray.create_group([*actors[:2], mortal], "never", timeout=100 * PATIENCE_S)
    rankwise_ray.create_group(actors[:2], "after it", timeout=PATIENCE_S)
    assert sums(cluster, actors[:2], "after it") == [2, 2]
    rankwise_ray.destroy_group(actors[:2], "after it")


def test_an_actor_that_is_busy_is_named_and_not_waited_for_without_an_end(cluster, fresh):
    pair = fresh(Member, 2)
    cluster.get(pair[1].init.remote(2, 1, "nobody else's"))
    pair[1].barrier.remote("nobody else's")  # where it stays
    with pytest.raises(TimeoutError, match=r"create_group 'late': of 2 actors.* 1 did not get to it within 1 s"):
        rankwise_ray.create_group(pair, "late", timeout=1)
    with pytest.raises(TimeoutError, match=r"destroy_group 'late': of 2 actors.* 1 did not get to it within 1 s"):
        rankwise_ray.destroy_group(pair, "late", timeout=1)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        *(({"ranks": ranks}, ValueError, "ranks must be 0 to 1, each once") for ranks in ([0, 0], [0], [1, 2])),
        ({"ranks": 1.5}, TypeError, "ranks must be a sequence"),
        *(({"ranks": [0, rank]}, TypeError, "a whole number") for rank in (1.5, True, "1", None)),
        ({"ranks": [0, -1]}, ValueError, "at least 0"),
        *(({"timeout": seconds}, ValueError, "timeout") for seconds in (-1, float("nan"))),
        *(({"timeout": seconds}, TypeError, "timeout") for seconds in (True, "1")),
        ({"name": ""}, ValueError, "name must not be empty"),
        ({"name": 1}, TypeError, "name must be a string"),
        ({"actors": []}, ValueError, "there are no actors"),
        ({"actors": None}, TypeError, "actors must be a sequence"),
        ({"actors": ["one"]}, TypeError, "handles of actors"),
    ],
)
def test_arguments_are_judged_before_an_actor_is_asked(actors, monkeypatch, options, error, words):
    monkeypatch.setattr(teams, "_call", lambda *_: pytest.fail("an actor was asked"))
    calls = [rankwise_ray.create_group] + ([] if "ranks" in options else [rankwise_ray.destroy_group])
    for call in calls:
        with pytest.raises(error, match=words) as told:
            call(**{"actors": actors[:2], **options})
        assert "[" not in str(told.value)
    with pytest.raises(ValueError, match="one rank only"):
        rankwise_ray.create_group([actors[0], actors[0]])


def test_no_actor_waits_for_itself(cluster, actors, fresh):
    with pytest.raises(ValueError, match="called in the actor with rank 1, which cannot wait for itself") as told:
        cluster.get(actors[1].make.remote(actors[:2], "with itself"))
    assert len(str(told.value.cause)) < 300
    cluster.get(actors[2].make.remote(actors[:2], "of others"))
    assert sums(cluster, actors[:2], "of others") == [2, 2]
    rankwise_ray.destroy_group(actors[:2], "of others")
    pair = fresh(Threaded, 2)
    cluster.get(pair[0].make.remote(pair, "of threads"))
    assert sums(cluster, pair, "of threads") == [2, 2]
