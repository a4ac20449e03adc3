"""Collectives on arrays of another memory order than C's: on their memory, or on copies where the orders differ."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from rankwise.basics.deadline import Deadline
from rankwise.basics.memory_order import Reordered
from rankwise.collective.fingerprint import Fingerprint, OrdersDifferError

if TYPE_CHECKING:
    from rankwise.collective.call import Call, Prepared

#: How many kinds of calls are known to be mixed. That one was forgotten costs a comparison more.
_KNOWN = 512


class Preparing(Protocol):
    """A communicator, as far as these calls must know it."""

    rank: int
    mixed: set[Hashable]

    def prepare(self, call: Call) -> Prepared:
        """Return what does this kind of call."""


class ByMemory:
    """One call on an array of another memory order, as something prepared.

    Its first run works on the memory, by what is prepared for that. If that shows that the ranks' orders differ, which
    costs them a comparison, this rank makes calls of this kind on copies from then on, which go together with those of
    any rank.
    """

    def __init__(self, comm: Preparing, prepared: Prepared, reordered: Reordered) -> None:
        self._comm, self._prepared, self._reordered = comm, prepared, reordered

    @property
    def fingerprint(self) -> Fingerprint:
        """What all ranks compare at first."""
        return self._prepared.fingerprint

    def bind(self, call: Call) -> tuple[Call, Any]:
        """Return the call, and what does it on the memory takes of it."""
        return call, self._prepared.bind(call)

    def run(self, given: tuple[Call, Any], sequence: int, deadline: Deadline) -> None:
        """Compare the calls, and carry this one out."""
        call, bound = given
        mixed = self._comm.mixed
        if call.kind in mixed:
            self._run_in_order(call, sequence, deadline)
            return
        try:
            self._prepared.run(bound, sequence, deadline)
        except OrdersDifferError:
            if len(mixed) >= _KNOWN:
                mixed.clear()
            mixed.add(call.kind)
            raise

    def _run_in_order(self, call: Call, sequence: int, deadline: Deadline) -> None:
        values = self._reordered.in_order()
        copied = replace(call, array=values, reordered=None)
        prepared = self._comm.prepare(copied)
        prepared.run(prepared.bind(copied), sequence, deadline)
        if self._is_filled(call):
            self._reordered.fill(values)

    def _is_filled(self, call: Call) -> bool:
        """Tell whether this rank's array gets the result."""
        if call.op == "broadcast":
            return self._comm.rank != call.root
        return call.root < 0 or self._comm.rank == call.root
