"""What Ray's own tests of collectives on the CPU ask for, as a table: one operation, many shapes and kinds."""

from importlib.util import find_spec
from itertools import count

import numpy as np
import pytest
from members import as_list, filled

KINDS = ["numpy", "torch"] if find_spec("torch") else ["numpy"]
SIZES = [2, 2**5, 2**10, 2**15, 2**20]
SHAPES = [*SIZES, (2, 2), (5, 5, 5)]
DTYPES = ["uint8", "float16", "float32", "float64"]
NAMES = ["default", "test", "123?34!"]
OPS = {"SUM": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum}
WORLDS = [2, 3, 4]
_numbers = count()


@pytest.fixture
def world(cluster, actors):
    """Make groups of the pool's first actors; all are destroyed at the end."""
    made = []

    def make(size, name=None, ranks=None):
        name = name or f"group {next(_numbers)}"
        order = ranks or range(size)
        made.append((name, size))
        cluster.get([a.init.remote(size, r, name) for a, r in zip(actors, order, strict=False)])
        return name, actors[:size]

    yield make
    for name, size in made:
        cluster.get([actor.destroy.remote(name) for actor in actors[:size]])


def every(cluster, calls):
    return [np.asarray(result) for result in cluster.get(list(calls))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", WORLDS)
@pytest.mark.parametrize(("shape", "dtype"), [(s, "float32") for s in SHAPES] + [(10, d) for d in DTYPES])
def test_allreduce(cluster, world, size, shape, dtype, kind):
    name, members = world(size)
    found = every(
        cluster, (a.do.remote("allreduce", name, filled(kind, shape, r + 1, dtype)) for r, a in enumerate(members))
    )
    for result in found:
        assert result.dtype == dtype
        assert (result == size * (size + 1) / 2).all()


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("size", WORLDS)
def test_each_op_of_allreduce_reduce_and_reducescatter(cluster, world, size, op):
    name, members = world(size)
    wanted = OPS[op].reduce(np.arange(2, size + 2))
    found = every(cluster, (a.reduce_all.remote(name, filled("numpy", 10, r + 2), op) for r, a in enumerate(members)))
    assert all((result == wanted).all() for result in found)
    for root in range(size):
        calls = (a.reduce_to.remote(name, filled("numpy", 10, r + 2), root, op) for r, a in enumerate(members))
        for rank, result in enumerate(every(cluster, calls)):
            assert (result == (wanted if rank == root else rank + 2)).all()
    calls = (a.scatter.remote(name, np.zeros(10), [np.full(10, r + 2.0)] * size, op) for r, a in enumerate(members))
    assert all((result == wanted).all() for result in every(cluster, calls))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", WORLDS)
@pytest.mark.parametrize(("shape", "dtype"), [(s, "float32") for s in SHAPES] + [(10, d) for d in DTYPES])
def test_allgather_and_reducescatter(cluster, world, size, shape, dtype, kind):
    name, members = world(size)
    calls = [
        a.gather.remote(name, [filled(kind, shape, 0, dtype) for _ in range(size)], filled(kind, shape, r + 1, dtype))
        for r, a in enumerate(members)
    ]
    for parts in cluster.get(calls):
        assert all((np.asarray(part) == rank + 1).all() for rank, part in enumerate(parts))
    calls = (
        a.scatter.remote(name, filled(kind, shape, 0, dtype), [filled(kind, shape, i + 1, dtype) for i in range(size)])
        for a in members
    )
    assert all((result == size * (rank + 1)).all() for rank, result in enumerate(every(cluster, calls)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", WORLDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_broadcast_and_reduce_with_each_root(cluster, world, size, shape, kind):
    name, members = world(size)
    for root in range(size):
        calls = (a.do.remote("broadcast", name, filled(kind, shape, r + 2), root) for r, a in enumerate(members))
        assert all((result == root + 2).all() for result in every(cluster, calls))
        calls = (a.do.remote("reduce", name, filled(kind, shape, r + 1), root) for r, a in enumerate(members))
        for rank, result in enumerate(every(cluster, calls)):
            assert (result == (size * (size + 1) / 2 if rank == root else rank + 1)).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("to", [0, 1])
@pytest.mark.parametrize("shape", [*SHAPES, (5, 9, 10, 85)])
def test_send_and_recv(cluster, world, shape, to, kind):
    name, members = world(2)
    calls = [
        a.do.remote("recv" if rank == to else "send", name, filled(kind, shape, rank + 1), 1 - rank)
        for rank, a in enumerate(members)
    ]
    assert all((result == 2 - to).all() for result in every(cluster, calls))


@pytest.mark.skipif("torch" not in KINDS, reason="torch is not in this environment")
def test_tensors_of_torch_and_of_numpy_meet(cluster, world):
    name, members = world(2)
    kinds = ["numpy", "torch"]
    for turn in (kinds, kinds[::-1]):
        calls = [
            a.do.remote("allreduce", name, filled(k, 10, r + 1))
            for r, (a, k) in enumerate(zip(members, turn, strict=True))
        ]
        assert all((result == 3).all() for result in every(cluster, calls))
        lists = [[filled(k, (10, 10), 1) for k in turn] for _ in members]
        calls = [a.gather.remote(name, lists[r], filled(turn[1 - r], (10, 10), r + 1)) for r, a in enumerate(members)]
        for parts in cluster.get(calls):
            assert [float(np.asarray(part).max()) for part in parts] == [1, 2]


@pytest.mark.parametrize("name", NAMES)
def test_names(cluster, world, name):
    _, members = world(2, name)
    calls = (a.do.remote("allreduce", name, np.ones(10)) for a in members)
    assert all((result == 2).all() for result in every(cluster, calls))


def test_several_groups_of_the_same_actors(cluster, world):
    made = [world(2) for _ in range(10)]
    for name, members in made:
        assert all(
            (r == 2).all() for r in every(cluster, (a.do.remote("allreduce", name, np.ones(10)) for a in members))
        )


def test_ranks_and_sizes_are_told(cluster, world, actors):
    name, _ = world(2)
    other, _ = world(2, ranks=[1, 0])
    for group, ranks in ((name, [0, 1]), (other, [1, 0])):
        assert cluster.get([a.state.remote(group) for a in actors[:2]]) == [(rank, 2, True) for rank in ranks]
    assert cluster.get(actors[0].state.remote("nothing")) == (-1, -1, False)


def test_a_group_is_destroyed_and_made_again_under_its_name(cluster, world, actors):
    name, members = world(2)
    for _ in range(3):
        assert every(cluster, (a.do.remote("allreduce", name, np.ones(3)) for a in members))[0][0] == 2
        cluster.get(members[0].destroy.remote(name))
        assert cluster.get([a.state.remote(name) for a in members])[1][2]
        cluster.get([members[0].destroy.remote("nothing"), members[1].destroy.remote(name)])
        with pytest.raises(RuntimeError, match="not initialized"):
            cluster.get(members[0].do.remote("allreduce", name, np.ones(3)))
        cluster.get([a.init.remote(2, rank, name) for rank, a in enumerate(members)])


@pytest.mark.parametrize("op", ["broadcast", "reduce", "send", "recv"])
def test_a_rank_that_is_not_there_is_refused(cluster, world, op):
    name, members = world(2)
    with pytest.raises(ValueError, match="rank '3' must be less"):
        cluster.get([a.do.remote(op, name, np.ones(3), 3) for a in members])


@pytest.mark.parametrize("length", [0, 1, 3])
def test_a_list_of_another_length_is_refused(cluster, world, length):
    name, members = world(2)
    with pytest.raises(RuntimeError):
        cluster.get([a.gather.remote(name, [np.ones(10)] * length, np.ones(10)) for a in members])


@pytest.mark.parametrize("shape", [20, (4, 5), (1, 3, 5, 7)])
def test_a_list_of_other_shapes_is_refused(cluster, world, shape):
    name, members = world(2)
    with pytest.raises(RuntimeError):
        cluster.get([a.gather.remote(name, [np.ones(shape)] * 2, np.ones(10)) for a in members])


def test_the_table_can_fail(cluster, world):
    name, members = world(2)
    found = cluster.get([a.do.remote("allreduce", name, np.ones(2)) for a in members])
    assert [as_list(result) for result in found] != [[1, 1], [1, 1]]
