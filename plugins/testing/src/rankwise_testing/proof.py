"""Proof by symbolic execution: all ranks run an algorithm on blocks that remember whose data is in them.

A block holds a set of contributions, written as an integer with a bit for each. The proof finds data that is combined
twice, lost, sent before it is there, or never received. It also finds an algorithm that deadlocks, or that receives
into an input of the caller's.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from operator import and_, or_
from typing import TypeAlias, TypeGuard

from rankwise.kits import Blocks, Recv, Round, Rounds, Send, rooted

#: What is in a block that nothing has been put into.
_NOTHING = 0

#: For each rank the contents of its blocks.
State: TypeAlias = list[list[int]]


class ProofError(AssertionError):
    """An algorithm does not do what its operation demands."""


def prove(op: str, algorithm: Callable[..., Rounds], size: int, root: int = 0) -> None:
    """Run an algorithm on `size` ranks and compare every block that its operation defines.

    Raises:
        ProofError: It hangs, loses or doubles data, receives into an input, or leaves a wrong result.
    """
    what = f"{op} on {size} ranks, root {root}"
    source = _before(op, size, root)
    # Two buffers where the operation has two; everywhere else what arrives is what is sent on.
    target = [[_NOTHING] * size for _ in range(size)] if op in ("all_to_all", "barrier") else source
    programs = [algorithm(rank, size, *rooted(op, root)) for rank in range(size)]
    _Run(what, programs, source, target, _inputs(op, size, root)).to_the_end()
    for rank, blocks, wanted in _after(op, size, root):
        found = target[rank][blocks]
        if found != wanted:
            block = next(i for i, content in enumerate(found) if content != wanted[i])
            text = f"block {blocks.start + block} of rank {rank} holds {found[block]:b}, not {wanted[block]:b}"
            raise ProofError(f"{what}: {text}")


def _before(op: str, size: int, root: int) -> State:
    nothing, each = [_NOTHING] * size, [1 << block for block in range(size)]
    if op in ("all_gather", "gather"):
        return [[*nothing[:rank], each[rank], *nothing[rank + 1 :]] for rank in range(size)]
    if op in ("broadcast", "scatter"):
        return [each.copy() if rank == root else nothing.copy() for rank in range(size)]
    if op == "all_to_all":
        return [[1 << (rank * size + block) for block in range(size)] for rank in range(size)]
    return [[own] * size for own in each]


def _inputs(op: str, size: int, root: int) -> dict[int, set[int]]:
    """Return for each rank the blocks whose memory the caller only gives, and which may be read-only."""
    if op in ("all_gather", "gather"):
        return {rank: {rank} for rank in range(size)}
    if op in ("broadcast", "scatter"):
        return {root: set(range(size))}
    return {}  # reductions work on copies, and `all_to_all` has a second buffer


def _after(op: str, size: int, root: int) -> Iterator[tuple[int, slice, list[int]]]:
    """Yield rank, blocks and their contents for all that the operation defines."""
    everyone, each = (1 << size) - 1, [1 << block for block in range(size)]
    everything = slice(0, size)
    for rank in range(size):
        own = slice(rank, rank + 1)
        if op == "all_reduce" or (op == "reduce" and rank == root):
            yield rank, everything, [everyone] * size
        elif op == "reduce_scatter":
            yield rank, own, [everyone]
        elif op in ("all_gather", "broadcast") or (op, rank) == ("gather", root):
            yield rank, everything, each
        elif op == "scatter":
            yield rank, own, [each[rank]]
        elif op == "all_to_all":
            arrived = [1 << (block * size + rank) for block in range(size)]
            yield rank, slice(0, rank), arrived[:rank]
            yield rank, slice(rank + 1, size), arrived[rank + 1 :]


class _Run:
    """One run of all ranks; messages between two ranks arrive in the order they were sent."""

    def __init__(
        self, what: str, programs: Sequence[Rounds], source: State, target: State, inputs: dict[int, set[int]]
    ) -> None:
        self.what, self.programs, self.source, self.target, self.inputs = what, programs, source, target, inputs
        self.wires: dict[tuple[int, int], deque[tuple[Blocks, list[int]]]] = defaultdict(deque)
        self.heard = [1 << rank for rank in range(len(programs))]

    def to_the_end(self) -> None:
        size = len(self.programs)
        current: list[Round | None] = [None] * size
        finished: set[int] = set()
        ready = deque(range(size))
        while ready:
            rank = ready.popleft()
            if rank in finished:
                continue
            steps = current[rank]
            if steps is None:
                steps = current[rank] = next(self.programs[rank], None)
                if steps is None:
                    finished.add(rank)
                    continue
                ready.extend(self._send(rank, steps))
            if self._arrived(rank, steps):
                self._receive(rank, steps)
                current[rank] = None
                ready.append(rank)
        if len(finished) < size:
            raise ProofError(f"{self.what} stands still")
        if any(self.wires.values()):
            raise ProofError(f"{self.what} leaves messages that nobody receives")
        if "barrier" in self.what and set(self.heard) != {(1 << size) - 1}:
            raise ProofError(f"{self.what} lets a rank go before all have come")

    def _send(self, rank: int, steps: Round) -> Iterator[int]:
        self._refuse_overlap(rank, steps)
        for step in steps:
            if isinstance(step, Send):
                content = _at(self.source[rank], step.blocks) or [self.heard[rank]]
                self.wires[rank, step.to].append((step.blocks, content))
                yield step.to

    def _refuse_overlap(self, rank: int, steps: Round) -> None:
        """Raise if a block is replaced while it is on its way out: a transport may send straight from it."""
        sent = [step.blocks for step in steps if isinstance(step, Send)]
        if not sent or self.source is not self.target:
            return
        replaced = set().union(*(step.blocks for step in steps if isinstance(step, Recv) and not step.combine))
        for blocks in sent:
            if replaced and not replaced.isdisjoint(blocks):
                raise ProofError(f"{self.what}: rank {rank} sends and replaces blocks {blocks} in one round")

    def _arrived(self, rank: int, steps: Round) -> bool:
        return all(self.wires[step.source, rank] for step in steps if isinstance(step, Recv))

    def _receive(self, rank: int, steps: Round) -> None:
        for step in steps:
            if not isinstance(step, Recv):
                continue
            named, content = self.wires[step.source, rank].popleft()
            if len(step.blocks) == 0:
                self.heard[rank] |= content[0]
                continue
            if len(named) != len(step.blocks) or (self.source is self.target and named != step.blocks):
                raise ProofError(f"{self.what}: rank {rank} expects {step.blocks} of rank {step.source}, gets {named}")
            self._put(rank, content, step)

    def _put(self, rank: int, content: list[int], step: Recv) -> None:
        row, blocks, given = self.target[rank], step.blocks, self.inputs.get(rank)
        if given and not given.isdisjoint(blocks):
            block = next(block for block in blocks if block in given)
            raise ProofError(f"{self.what}: rank {rank} receives block {block} into an input")
        if _NOTHING in content:
            block = blocks[content.index(_NOTHING)]
            raise ProofError(f"{self.what}: rank {step.source} sends block {block} before it has it")
        if _together(blocks, row):
            beside = slice(blocks.start, blocks.stop)
            if not step.combine:
                row[beside] = content
                return
            if not any(map(and_, row[beside], content)):
                row[beside] = list(map(or_, row[beside], content))
                return
        for block, value in zip(blocks, content, strict=True):
            if step.combine and row[block] & value:
                raise ProofError(f"{self.what}: rank {rank} combines a contribution to block {block} twice")
            row[block] = row[block] | value if step.combine else value


def _together(blocks: Blocks, row: list[int]) -> TypeGuard[range]:
    """Tell whether blocks are beside each other in a row, where they are got and set in one call."""
    return isinstance(blocks, range) and blocks.step == 1 and 0 <= blocks.start <= blocks.stop <= len(row)


def _at(row: list[int], blocks: Blocks) -> list[int]:
    return row[blocks.start : blocks.stop] if _together(blocks, row) else [row[block] for block in blocks]
