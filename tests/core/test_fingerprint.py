"""What of a call must be the same on all ranks, what in pairs, and what is said when it is not."""

from __future__ import annotations

import inspect
import json
import random
from dataclasses import asdict, fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from rankwise.basics.deadline import Deadline
from rankwise.collective import fingerprint
from rankwise.collective.fingerprint import Fingerprint, counts, described, mismatch, same_call
from rankwise.errors import CollectiveMismatchError

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
    "order": -5,
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


def test_each_pair_must_agree_whatever_the_sums_are() -> None:
    chance = random.Random(7)
    for _ in range(500):
        counts = {(i, k): chance.randrange(4) for i in range(3) for k in range(3)}
        told = counts if chance.random() < 0.5 else dict(zip(counts, chance.sample([*counts.values()], 9), strict=True))
        calls = [
            Fingerprint(
                "all_to_all",
                sent=tuple((peer, counts[rank, peer]) for peer in range(3)),
                received=tuple((peer, told[peer, rank]) for peer in range(3)),
            )
            for rank in range(3)
        ]
        assert same_call([call.record(rank, 0) for rank, call in enumerate(calls)]) == (counts == told)


def test_a_pair_counts_as_on_every_other_rank() -> None:
    assert [replace(CALL, sent=((peer, count),)).sums(rank)[0] for rank, peer, count in ((0, 1, 4), (1, 0, 4))] == [
        0x725D0DFB1A320550,
        0xFE1127888C9B612D,
    ]
    assert replace(CALL, received=((2, 1000),)).sums(5) == (0, 0x97EBDF099FCE2459)


def explained(*calls: Fingerprint, numbers: tuple[int, ...] = ()) -> CollectiveMismatchError:
    """Return the error of ranks 10, 11, ..., which make these calls in lines 0, 1, ... of a program."""
    told: list[dict[str, Any]] = [
        {**asdict(call), "sequence": numbers[rank] if numbers else 7, "at": f"program.py:{rank}"}
        for rank, call in enumerate(calls)
    ]
    return fingerprint.error_of(json.loads(json.dumps(told)), tuple(range(10, 10 + len(calls))), "test")


def test_the_few_are_named_first_and_the_many_are_not_to_blame() -> None:
    usual, other = Fingerprint("all_reduce", "SUM", -1, "<f8", 4, shape=(2, 2)), Fingerprint("reduce", "MAX", 0, "<f4")
    error = explained(usual, other, usual, Fingerprint("barrier"), usual)
    assert error.odd_ranks == (11, 13)
    lines = str(error).splitlines()[1:]
    assert sorted(lines[:2]) == [
        "  rank 11 called reduce(MAX, <f4, root=0) at program.py:1, its collective number 7",
        "  rank 13 called barrier() at program.py:3, its collective number 7",
    ]
    assert lines[2:] == [
        "  ranks 10, 12, 14 called all_reduce(SUM, <f8, shape (2, 2)) at program.py:0, its collective number 7"
    ]
    assert explained(other, usual, usual, usual).odd_ranks == (10,)
    assert explained(usual, other).odd_ranks == (10, 11)
    assert explained(usual, usual, usual, numbers=(7, 8, 7)).odd_ranks == (11,)


@pytest.mark.parametrize(("count", "said"), [(2, "1, 1"), (16, "1, 1"), (17, "1, ... (17 in all)")])
def test_long_lists_are_cut(count: int, said: str) -> None:
    assert described(Fingerprint("scatter", parts=(1,) * count)).endswith(f"{said} elements)")
    assert len(described(Fingerprint("scatter", parts=(1,) * count)).split(", ")) == count


def test_pairs_that_do_not_fit_are_named() -> None:
    error = explained(
        Fingerprint("gather", root=0, received=((0, 1), (1, 4), (2, 4)), sent=((0, 2),)),
        Fingerprint("gather", root=0, sent=((0, 4),)),
        Fingerprint("gather", root=0, sent=((0, 3),)),
    )
    assert error.odd_ranks == (10, 12)  # the root for itself alone
    assert str(error).splitlines() == [
        "the parts of gather, collective number 7, on group 'test' do not fit:",
        "  rank 10 sends 2 elements to rank 10, which expects 1",
        "  rank 12 sends 3 elements to rank 10, which expects 4",
    ]
    assert explained(Fingerprint("all_to_all", sent=((1, 2),)), Fingerprint("all_to_all")).odd_ranks == (10, 11)


def test_the_line_of_the_program_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "error_of", lambda calls, names, group: calls[0]["at"])
    comm = SimpleNamespace(size=1, rank=0, context=SimpleNamespace(global_ranks=(0,), name="test"))
    frame = inspect.currentframe()
    assert frame is not None
    line = frame.f_lineno + 1
    assert mismatch(comm, CALL, 7, Deadline(1)) == f"test_fingerprint.py:{line}"  # type: ignore[arg-type]
