"""A collective that is described in steps, on any layout of hosts: its rounds become meetings and exchanges.

All ranks take their rounds in step. What moves at a time between the ranks of a host moves at their board, in one
meeting; what moves between hosts is an exchange. Both are steps that a program consists of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rankwise.backends import Array, Call, ReduceOp, joined
from rankwise_gloo_tcp.collectives.hierarchy import Hosts
from rankwise_gloo_tcp.collectives.in_step import Beat, in_step
from rankwise_gloo_tcp.collectives.means import Means
from rankwise_gloo_tcp.collectives.streams import Subset

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

#: More ranks than this do not meet for each round: what few of them have to say would keep all of them.
_MOST_RANKS = 16
#: What C reduces.
_REDUCED_KINDS, _REDUCED_NBYTES = "biuf", 8
_NOTHING: Array = np.empty(0, np.uint8)


def pays(comm: GlooCommunicator, call: Call) -> bool:
    """Tell whether a call goes so: by what all ranks know alike, where C is expected to take its steps on all of them.

    In Python a meeting of all ranks costs more than the few messages whose place it takes.
    """
    op, dtype = call.reduce_op, call.array.dtype
    reduces_in_c = op is None or (
        op.is_plain_on(dtype)
        and hasattr(type(op), op.name)
        and dtype.kind in _REDUCED_KINDS
        and dtype.itemsize <= _REDUCED_NBYTES
    )
    return comm.all_compiled and 1 < comm.size <= _MOST_RANKS and dtype.names is None and reduces_in_c


def lowered(hosts: Hosts, by: Means, call: Call) -> None:
    """Carry out a call by its description."""
    assert call.describe is not None  # whoever comes here has looked
    call.describe(_Lowered(hosts, by), call)


class _Lowered:
    """The steps of a description, on hosts.

    Args:
        hosts: Where the ranks are.
        by: What moves the data.
    """

    def __init__(self, hosts: Hosts, by: Means) -> None:
        self._hosts, self._by = hosts, by
        self.rank, self.size = hosts.rank, hosts.size

    def accumulator(self, op: ReduceOp, array: Array) -> Array:
        if not op.is_plain_on(array.dtype):
            accumulator: Array = op.accumulator(array)
            return accumulator
        flat = array.reshape(-1)
        total = self._by.scratch(flat)
        self._by.copy(total, flat)
        return total

    def copy(self, target: Array, source: Array) -> None:
        self._by.copy(target, source)

    def finish(self, op: ReduceOp, total: Array, target: Array) -> None:
        if not op.is_plain_on(target.dtype):
            self._by.finish(op, total, target, self.size)
            return
        self._by.copy(target, total)
        if op.name == "AVG":
            self._by.finish(op, target, target, self.size)

    def rounds(
        self, algorithm: Any, source: Sequence[Array], target: Sequence[Array], op: ReduceOp | None = None, *args: Any
    ) -> None:
        if source:  # else the messages would say no more than the comparison of the calls has said
            _Rounds(self._hosts, self._by, source, target, op).run(in_step(algorithm, self.size, *args))


class _Rounds:
    """The rounds of one algorithm on the blocks of one call."""

    def __init__(
        self, hosts: Hosts, by: Means, source: Sequence[Array], target: Sequence[Array], op: ReduceOp | None
    ) -> None:
        self._hosts, self._by, self._source, self._target, self._op = hosts, by, source, target, op
        self._here = hosts.ranks[hosts.here]
        #: What has come in this round, by its sender: where it is, and whether that is its place.
        self._came: dict[int, deque[tuple[Array, bool]]] = {}

    def run(self, beats: Sequence[Beat]) -> None:
        """Take all of them."""
        between = self._between(beats)
        for beat in beats:
            sent = {
                to: self._outgoing(blocks) for source, to, blocks, _ in beat.transfers if source == self._hosts.rank
            }
            taken = {
                source: self._incoming(source, received.blocks, received.combine)
                for source, to, _, received in beat.transfers
                if to == self._hosts.rank
            }
            if any(source in self._here and to in self._here for source, to, *_ in beat.transfers):
                self._meet(sent, taken)
            if between is not None:
                self._exchange(between, sent, taken)
            for source, blocks, combines, left in beat.ended.get(self._hosts.rank, ()):
                room, is_in_place = self._came[source].popleft()
                if not is_in_place:
                    self._take(blocks, room, combines, left)

    def _between(self, beats: Sequence[Beat]) -> Subset | None:
        """Return this rank and those of other hosts that it has to do with, if there are any."""
        me = self._hosts.rank
        peers = {
            to if source == me else source for beat in beats for source, to, *_ in beat.transfers if me in (source, to)
        }
        away = sorted(peers.difference(self._here))
        # Segments are as long for all, whoever has to do with how many.
        return self._hosts.among(sorted([me, *away]), max(3, self._hosts.size)) if away else None

    def _outgoing(self, numbers: Sequence[int]) -> Array:
        """Return blocks as they are sent, one behind the other."""
        blocks = [self._source[number] for number in numbers]
        whole = joined(blocks) if blocks else _NOTHING
        if whole is not None:
            return whole
        whole = self._scratch(blocks)
        for block, piece in _over(blocks, whole):
            self._by.copy(piece, block)
        return whole

    def _incoming(self, source: int, numbers: Sequence[int], combines: bool) -> Array:
        """Return where blocks are received, their place if that is possible."""
        blocks = [self._target[number] for number in numbers]
        whole = joined(blocks) if blocks and not combines else None
        room = (self._scratch(blocks) if blocks else _NOTHING) if whole is None else whole
        self._came.setdefault(source, deque()).append((room, whole is not None))
        return room

    def _scratch(self, blocks: Sequence[Array]) -> Array:
        return self._by.scratch(np.empty(sum(block.size for block in blocks), blocks[0].dtype))

    def _take(self, numbers: Sequence[int], room: Array, combines: bool, left: bool) -> None:
        """Put what has come to its place, or combine it with what is there."""
        blocks = [self._target[number] for number in numbers]
        whole = joined(blocks) if blocks else None
        for block, piece in _over(blocks if whole is None else [whole], room):
            if combines and self._op is not None:
                self._by.combine(self._op, block, piece, left)
            else:
                self._by.copy(block, piece)

    def _meet(self, sent: Mapping[int, Array], taken: Mapping[int, Array]) -> None:
        """Move what moves between ranks of this host."""
        ins, outs = ([_bytes(lanes.get(rank, _NOTHING)) for rank in self._here] for lanes in (sent, taken))
        self._by.on_host(Call("all_to_all", ins[self._hosts.place], ins=ins, outs=outs))

    def _exchange(self, between: Subset, sent: Mapping[int, Array], taken: Mapping[int, Array]) -> None:
        """Move what this rank has for ranks of other hosts, and they for this one."""
        out, into = (
            {
                between.ranks.index(rank): _bytes(each)
                for rank, each in lanes.items()
                if rank not in self._here and each.size
            }
            for lanes in (sent, taken)
        )
        if out or into:
            self._by.exchange(between, out, into)


def _over(blocks: Sequence[Array], whole: Array) -> list[tuple[Array, Array]]:
    """Return each block with its piece of an array that holds one behind the other."""
    ends = np.cumsum([block.size for block in blocks]).tolist()
    return [(block, whole[end - block.size : end]) for block, end in zip(blocks, ends, strict=True) if block.size]


def _bytes(array: Array) -> Array:
    flat: Array = array.reshape(-1).view(np.uint8)
    return flat
