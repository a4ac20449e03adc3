"""Collectives between hosts that send their data, or some of it, along with the comparison of the calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rankwise.backends import COLLECTIVE_TAG, Array, Deadline, ReduceOp, accumulation_dtype, as_bytes
from rankwise_gloo_tcp.collectives import streams
from rankwise_gloo_tcp.collectives.copying import assign
from rankwise_gloo_tcp.collectives.opening import inline_nbytes

if TYPE_CHECKING:
    from rankwise_gloo_tcp.collectives.strategy import Strategy

__all__ = ["Along", "OneShot", "Plan"]

_NOTHING = memoryview(b"")


class Plan:
    """A collective whose data, or some of it, goes with the opening."""

    def offer(self, us: Strategy) -> list[memoryview]:
        """Return what goes to each rank."""
        raise NotImplementedError

    def expect(self, us: Strategy) -> list[int]:
        """Return how many bytes come from each rank."""
        raise NotImplementedError

    def take(self, us: Strategy, contents: list[memoryview], deadline: Deadline) -> None:
        """Finish, now that all have made the same call and their data is here."""
        raise NotImplementedError

    def __call__(self, deadline: Deadline, counts: Sequence[int]) -> None:
        """Do it without an opening."""
        raise NotImplementedError


class OneShot(Plan):
    """Everyone gets the contributions of all, and reduces them in the order of ranks.

    Args:
        out: Where the result goes.
        op: How to reduce.
        parts: What each rank gets as this one's contribution.
        root: Who alone reduces, or -1.
    """

    def __init__(self, out: Array, op: ReduceOp, parts: Sequence[Array], root: int = -1) -> None:
        self.out, self.op, self.root = out, op, root
        # The factor is each rank's own; a wider accumulator is made where it is reduced.
        made = {id(part): part.reshape(-1) if op.factor is None else op.accumulator(part) for part in parts}
        self.parts = [made[id(part)] for part in parts]

    def offer(self, us: Strategy) -> list[memoryview]:
        views = {id(part): as_bytes(part) for part in self.parts}
        return [
            views[id(part)] if self.root in (-1, peer) and peer != us.rank else _NOTHING
            for peer, part in enumerate(self.parts)
        ]

    def expect(self, us: Strategy) -> list[int]:
        return [self.parts[us.rank].nbytes if self.root in (-1, us.rank) else 0] * us.size

    def take(self, us: Strategy, contents: list[memoryview], deadline: Deadline) -> None:
        if self.root not in (-1, us.rank):
            return
        op, mine, out = self.op, self.parts[us.rank], self.out.reshape(-1)
        wide = accumulation_dtype(op.name, mine.dtype)
        arrays = [np.frombuffer(content, np.uint8).view(mine.dtype) for content in contents]
        arrays[us.rank] = mine
        if wide != out.dtype or op.base is not op:
            total = arrays[0].astype(wide)
            for array in arrays[1:]:
                op.combine(total, array)
            op.finish(total, self.out, us.size)
            return
        if us.size == 2 and np.may_share_memory(out, mine):
            op.combine(out, arrays[1 - us.rank], us.rank == 1)
            return
        mine = mine.copy() if us.rank and np.may_share_memory(out, mine) else mine
        arrays[us.rank] = mine
        assign(out, arrays[0])
        for array in arrays[1:]:
            op.combine(out, array)


class Along(Plan):
    """Everyone gets something of some others: with the opening if it is small, alone if it is not.

    Args:
        offered: What each rank gets of this one.
        wanted: Where to put what comes from each rank.
    """

    def __init__(self, offered: dict[int, Array], wanted: dict[int, Array]) -> None:
        self.offered, self.wanted = offered, wanted

    def offer(self, us: Strategy) -> list[memoryview]:
        views = [_NOTHING] * us.size
        most = inline_nbytes(us.size)
        made = {id(array): as_bytes(array) for array in self.offered.values() if array.nbytes <= most}
        for peer, array in self.offered.items():
            if peer != us.rank and array.nbytes <= most:
                views[peer] = made[id(array)]
        return views

    def expect(self, us: Strategy) -> list[int]:
        lengths = [0] * us.size
        for peer, array in self.wanted.items():
            if peer != us.rank and array.nbytes <= inline_nbytes(us.size):
                lengths[peer] = array.nbytes
        return lengths

    def take(self, us: Strategy, contents: list[memoryview], deadline: Deadline) -> None:
        spread, rank, most = us.comm.spread, us.rank, inline_nbytes(us.size)
        by: streams.Carrier = us.comm.engine if spread is None else spread(range(us.size))
        large = [(peer, a) for peer, a in self.wanted.items() if peer != rank and a.nbytes > most]
        requests = [by.receive_bytes(as_bytes(array), peer, COLLECTIVE_TAG, True) for peer, array in large]
        large = [(peer, a) for peer, a in self.offered.items() if peer != rank and a.nbytes > most]
        requests += [by.send_bytes(as_bytes(array), peer, COLLECTIVE_TAG, True) for peer, array in large]
        for peer, array in self.wanted.items():
            if peer == rank and rank in self.offered:
                assign(array, self.offered[rank])
            elif peer != rank and array.nbytes <= most:
                as_bytes(array)[:] = contents[peer]
        streams.wait_for(by, requests, deadline)
