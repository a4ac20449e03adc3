"""Comparing the calls of all ranks."""

from __future__ import annotations

from rankwise.basics.deadline import Deadline
from rankwise.collective.fingerprint import Fingerprint, Members, counts, exchange, same_call
from rankwise.errors import CollectiveMismatchError

__all__ = ["agree", "mismatch"]


def agree(comm: Members, mine: Fingerprint, sequence: int, deadline: Deadline) -> tuple[int, ...]:
    """Compare this call with those of all other ranks, and return how many elements each of them contributes.

    Steps: ceil(log2 p). Bytes: 40 (p - 1).

    Raises:
        CollectiveMismatchError: They are not the same call; every rank raises this, and nothing has moved. It
            is an `OrdersDifferError` if they differ in the memory order alone.
    """
    if comm.size == 1:
        return (mine.count,)
    records = exchange(comm, mine.record(comm.rank, sequence), deadline)
    if not same_call(records):
        raise mismatch(comm, mine, sequence, deadline)
    return counts(records)


def mismatch(comm: Members, mine: Fingerprint, sequence: int, deadline: Deadline) -> CollectiveMismatchError:
    """Exchange the calls in words, and return the error that all ranks are to raise; all must call this."""
    from rankwise.collective.disagreement import explained  # which most programs need not load

    return explained(comm, mine, sequence, deadline)
