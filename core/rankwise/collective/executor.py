"""One rank's run of an algorithm, over point-to-point messages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from rankwise.basics.arrays import Array
from rankwise.basics.deadline import Deadline
from rankwise.basics.devices import raw
from rankwise.basics.messages import COLLECTIVE_TAG
from rankwise.basics.reduce_op import ReduceOp
from rankwise.basics.work import Work
from rankwise.collective.algorithms import Blocks, Recv, Round, Rounds, Send
from rankwise.errors import DistTimeoutError


class PointToPoint(Protocol):
    """All that is asked of a backend."""

    rank: int
    size: int

    def isend(self, array: Array, dst: int, tag: int) -> Work:
        """Begin to send."""

    def irecv(self, array: Array, src: int | None, tag: int) -> Work:
        """Begin to receive."""


class Executor:
    """Runs rounds: blocks are sent from `source` and received into `target`, which may be the same."""

    def __init__(
        self,
        comm: PointToPoint,
        source: Sequence[Array],
        target: Sequence[Array],
        deadline: Deadline,
        op: ReduceOp | None = None,
        tag: int = COLLECTIVE_TAG,
    ) -> None:
        self.comm, self.source, self.target = comm, source, target
        self.deadline, self.op, self.tag = deadline, op, tag

    def run(self, rounds: Rounds) -> None:
        """Run all rounds, one after the other."""
        for steps in rounds:
            self._round(steps)

    def _round(self, steps: Round) -> None:
        """Post all receives, then all sends; wait for both, then take in what has come, in the order of the steps."""
        coming = [self._begin_receive(step) for step in steps if isinstance(step, Recv)]
        going = [(step.to, self._begin_send(step)) for step in steps if isinstance(step, Send)]
        self._wait("waiting for", [(step.source, work) for step, _, work in coming])
        # Before anything is combined into blocks that are still on their way out.
        self._wait("sending to", going)
        arrived = [(step, buffer) for step, buffer, _ in coming if buffer is not None]
        for blocks, messages in groupby(arrived, key=lambda message: message[0].blocks):
            self._take(blocks, list(messages))

    def _begin_receive(self, step: Recv) -> tuple[Recv, Array | None, Work | None]:
        """Receive straight into place if that is possible, else into scratch, which is returned."""
        blocks = [self.target[b] for b in step.blocks]
        whole = None if step.combine else joined(blocks)
        if whole is not None and getattr(whole.flags, "writeable", True):
            return step, None, self._receive(whole, step.source)
        scratch = _EMPTY
        if blocks:
            like = self.source[step.blocks[0]]  # what travels has the dtype of what is sent
            scratch = np.empty_like(like, shape=(sum(block.size for block in blocks),))
        return step, scratch, self._receive(scratch, step.source)

    def _receive(self, buffer: Array, source: int) -> Work | None:
        # Both sides know the sizes, so an empty message says nothing; only a barrier needs its signals.
        if buffer.size == 0 and self.source:
            return None
        return self.comm.irecv(buffer, source, self.tag)

    def _begin_send(self, step: Send) -> Work | None:
        blocks = [self.source[b] for b in step.blocks]
        whole = joined(blocks) if blocks else _EMPTY
        if whole is None:
            whole = np.concatenate([raw(block) for block in blocks]).view(blocks[0].dtype)
        if whole.size == 0 and self.source:
            return None
        return self.comm.isend(whole, step.to, self.tag)

    def _take(self, numbers: Blocks, messages: Sequence[tuple[Recv, Array]]) -> None:
        """Put or combine into the same blocks what several messages have brought, a cacheful at a time."""
        start = 0
        for block in (self.target[number] for number in numbers):
            stride = max(1, _CACHEFUL // max(1, block.itemsize))
            for begin in range(0, block.size, stride):
                piece = block[begin : begin + stride]
                span = slice(start + begin, start + begin + piece.size)
                for step, buffer in messages:
                    if step.combine and self.op is not None:
                        self.op.combine(piece, buffer[span], step.left)
                    else:
                        piece[...] = buffer[span]
            start += block.size

    def _wait(self, doing: str, works: Sequence[tuple[int, Work | None]]) -> None:
        for peer, work in works:
            if work is None:
                continue
            try:
                work.wait(self.deadline.remaining())
            except DistTimeoutError:
                late = {peer, *(other for other, w in works if w is not None and not w.is_completed())}
                names = sorted(_named(self.comm, other) for other in late)
                who = f"{doing} rank{'s' if len(late) > 1 else ''} {', '.join(map(str, names))}"
                failure = DistTimeoutError(f"timed out: not done within {self.deadline.timeout_s:g} s, {who}")
                failure.waited_for = tuple(names)
                raise failure from None


_EMPTY: Array = np.empty(0, np.uint8)

#: Bytes that are combined at a time. With several peers the accumulator then stays in the cache from one to the next,
#: which was measured to save a quarter of the time.
_CACHEFUL = 256 << 10


def _named(comm: PointToPoint, peer: int) -> int:
    """Return the global rank, by which users know their processes, if the communicator can tell it."""
    context: Any = getattr(comm, "context", None)
    name: int = peer if context is None else context.global_ranks[peer]
    return name


def joined(blocks: Sequence[Array]) -> Array | None:
    """Return one array over the memory of blocks that follow each other in it, or None if they do not."""
    filled = [block for block in blocks if block.size]
    if len(filled) <= 1:
        return filled[0] if filled else (blocks[0] if blocks else None)
    base = filled[0].base
    if base is None or type(base) is not np.ndarray or not base.flags.c_contiguous or not base.nbytes:
        return None
    address = begin = filled[0].ctypes.data
    for block in filled:
        if block.base is not base or block.ctypes.data != address:
            return None
        address += block.nbytes
    offset = begin - base.ctypes.data
    return raw(base)[offset : offset + address - begin].view(filled[0].dtype)
