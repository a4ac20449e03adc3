"""Features that are not declared are tried all the same: an author may want to know that one works."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import rankwise as dist
from rankwise_testing.suite.arrays import same
from rankwise_testing.suite.expect import begun, host, numbers
from rankwise_testing.suite.measuring import join_unguarded
from rankwise_testing.suite.place import JoinPlan
from rankwise_testing.suite.plugin import Kit

_OPS = {
    "tags": "send",
    "any_source": "recv",
    "short_messages": "recv",
    "probe": "recv",
    "uneven": "all_gather",
    "sparse": "all_reduce",
    "async": "all_reduce",
}


@pytest.mark.parametrize("feature", list(_OPS))
def test_an_undeclared_feature_is_tried(kit: Kit, request: pytest.FixtureRequest, feature: str) -> None:
    if not kit.lacks(feature):
        pytest.skip(f"{feature} is declared, and proved by other tests")
    for op in {"send", "recv", _OPS[feature]}:
        if reason := kit.lacks(op):
            pytest.skip(reason)
    kit.sizes(2)
    works = kit.measurements.try_undeclared(works_unguarded, kit.spec.name, feature)
    kit.features[feature] = works
    kit.shown_by[feature] = request.node.name
    if works and not kit.spec.capabilities.cell(feature, kit.device).reason:
        kit.notes.append(f"{feature} works, and is not declared ({request.node.name})")


def works_unguarded(meeting: JoinPlan, rank: int, backend: str, feature: str) -> bool:
    join_unguarded(meeting, rank, backend)
    try:
        _TRIALS[feature](rank)
    except Exception:  # the question is only whether it works
        return False
    return True


def _tags(rank: int) -> None:
    first, second = numbers(1), numbers(2)
    if rank == 0:
        works = [begun(dist.isend(first, 1, tag=1)), begun(dist.isend(second, 1, tag=2))]
    else:
        works = [begun(dist.irecv(first, 0, tag=2)), begun(dist.irecv(second, 0, tag=1))]
    for work in reversed(works):
        work.wait()
    same(first, host(1 + rank))
    same(second, host(2 - rank))


def _any_source(rank: int) -> None:
    array = numbers(rank)
    if rank == 0:
        dist.send(array, 1)
    else:
        assert dist.recv(array) == 0
        same(array, host(0))


def _probe(rank: int) -> None:
    if rank == 0:
        dist.send(numbers(1, 2), 1)
        return
    found = dist.probe(0)
    assert found is not None
    assert found.nbytes == numbers(1, 2).nbytes
    dist.recv(numbers(0, 0), 0)


def _short_messages(rank: int) -> None:
    if rank == 0:
        dist.send(numbers(7), 1)
    else:
        array = numbers(0, 0)
        dist.recv(array, 0)
        same(array, host(7, 0))


def _uneven(rank: int) -> None:
    parts = [numbers(0), numbers(0, 0)]
    dist.all_gather(parts, numbers(*[7] * (rank + 1)))
    same(parts[0], host(7))
    same(parts[1], host(7, 7))


def _sparse(rank: int) -> None:
    from scipy.sparse import csr_array

    array = csr_array(np.eye(2) * (rank + 1))
    dist.all_reduce(array)
    same(array.toarray(), np.eye(2) * 3)


def _asynchronous(rank: int) -> None:
    arrays = [numbers(rank, i) for i in range(3)]
    for work in [begun(dist.all_reduce(array, async_op=True)) for array in arrays]:
        work.wait()
    for i, array in enumerate(arrays):
        same(array, host(1, 2 * i))


_TRIALS: dict[str, Callable[[int], None]] = {
    "tags": _tags,
    "any_source": _any_source,
    "short_messages": _short_messages,
    "probe": _probe,
    "uneven": _uneven,
    "sparse": _sparse,
    "async": _asynchronous,
}
