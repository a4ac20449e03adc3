"""What of a call must be the same on all ranks, and what in pairs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from rankwise.collective.fingerprint import Fingerprint, counts, same_call

CALL = Fingerprint("gather", "SUM", 0, "<f8", 4, (2, 2), (), (), (4,))
#: Rank 0 sends four elements to rank 1.
SENDER, RECEIVER = replace(CALL, sent=((1, 4),)), replace(CALL, received=((0, 4),))
OTHERS: dict[str, Any] = {
    "op": "scatter",
    "reduce_op": "MAX",
    "root": 1,
    "dtype": ">f8",
    "count": 5,
    "parts": (1, 3),
    "sent": ((0, 4),),
    "received": ((0, 5),),
    "shape": (2, 2),
}
#: Compared by the sums over all ranks.
IN_PAIRS = ("sent", "received")


def same(sender: Fingerprint, receiver: Fingerprint, numbers: tuple[int, int] = (7, 7)) -> bool:
    return same_call([call.record(rank, numbers[rank]) for rank, call in enumerate((sender, receiver))])


def test_equal_calls_are_the_same() -> None:
    assert same(SENDER, RECEIVER)
    assert not same(SENDER, RECEIVER, (7, 8))


@pytest.mark.parametrize("name", [field.name for field in fields(Fingerprint)])
def test_each_field_is_compared(name: str) -> None:
    other = replace(RECEIVER, **{name: OTHERS[name]})
    assert not same(SENDER, other)
    assert (other.digest() == RECEIVER.digest()) == (name in IN_PAIRS)
    assert (other.sums(1) == RECEIVER.sums(1)) == (name not in IN_PAIRS)


def test_ranks_may_contribute_different_counts_where_no_shape_is_compared() -> None:
    calls = [replace(CALL, shape=None, count=count) for count in (3, 5)]
    records = [call.record(rank, 7) for rank, call in enumerate(calls)]
    assert same_call(records)
    assert counts(records) == (3, 5)
