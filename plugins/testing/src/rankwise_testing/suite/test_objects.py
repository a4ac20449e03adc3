"""Python objects through the collectives."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise.errors import DistError
from rankwise_testing.suite.expect import error_of, still_usable
from rankwise_testing.suite.plugin import Kit, needs

_SIZES = pytest.mark.parametrize("size", [1, 2, 3])


@pytest.fixture(autouse=True)
def _moves_bytes(kit: Kit) -> None:
    """Objects travel as bytes, and so do their numbers."""
    for op in ("send", "recv", "broadcast", "all_gather", "gather", "scatter"):
        if not kit.measurements.declares(op, None, "uint8"):
            pytest.skip(f"backend {kit.spec.name!r} declares no {op} of uint8 on {kit.device}")


def _object(rank: int) -> dict[str, Any]:
    return {
        "rank": rank,
        "text": "é" * 50 * rank,  # of a different length on each rank
        "parts": [None, True, 2**70, 1.5, 2j, b"\0\1", (1, {2, 3})],
        "when": datetime.datetime(2020, 1, 1 + rank, tzinfo=datetime.timezone.utc),
    }


@_SIZES
@needs("all_gather", "gather", "broadcast", "scatter")
def test_objects_of_any_size_travel(kit: Kit, size: int) -> None:
    kit.run(size, collectives)


def collectives() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    wanted = [_object(r) for r in range(size)]
    everyone: list[Any] = [None] * size
    dist.all_gather_object(everyone, _object(rank))
    assert everyone == wanted
    for root in range(size):
        gathered: list[Any] | None = [None] * size if rank == root else None
        dist.gather_object(_object(rank), gathered, dst=root)
        assert gathered == (wanted if rank == root else None)
        shared = [_object(7), root] if rank == root else [None, None]
        dist.broadcast_object_list(shared, src=root)
        assert shared == [_object(7), root]
        got: list[Any] = [None]
        dist.scatter_object_list(got, wanted if rank == root else None, src=root)
        assert got == [wanted[rank]]


@needs("send", "recv")
def test_objects_travel_between_two_ranks(kit: Kit) -> None:
    kit.run(2, messages)


def messages() -> None:
    if dist.get_rank() == 0:
        dist.send_object_list([_object(1), np.arange(3)], 1)
    else:
        received: list[Any] = [None, None]
        assert dist.recv_object_list(received, 0) == 0
        assert received[0] == _object(1)
        np.testing.assert_array_equal(received[1], np.arange(3))


@needs("all_gather", "all_reduce")
def test_what_is_not_plain_data_is_refused_before_anything_is_sent(kit: Kit) -> None:
    kit.run(2, refused)


def refused() -> None:
    if dist.get_rank() == 0:
        error_of(TypeError, dist.all_gather_object, [None, None], object())
    still_usable()


@needs("all_gather")
def test_nothing_is_unpickled_unless_all_want_it(kit: Kit) -> None:
    kit.run(2, pickled)


def pickled() -> None:
    everyone: list[Any] = [None, None]
    dist.all_gather_object(everyone, {1: range(3)}, pickle=True)
    assert everyone == [{1: range(3)}] * 2
    if dist.get_rank() == 0:
        dist.all_gather_object(everyone, 1, pickle=True)
    else:
        error_of(DistError, dist.all_gather_object, everyone, 1)
