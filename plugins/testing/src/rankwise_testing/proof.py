"""Proof by symbolic execution: all ranks run an algorithm on blocks that remember whose data is in them.

A block holds a set of contributions, written as an integer with a bit for each. The proof finds data that is combined
twice, lost, sent before it is there, or never received. It also finds an algorithm that deadlocks, or that receives
into an input of the caller's.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from rankwise.collective.algorithms.steps import Blocks, Recv, Round, Rounds, Send
from rankwise.collective.algorithms.table import rooted

__all__ = ["ProofError", "prove"]

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
    for rank, block, wanted in _after(op, size, root):
        if target[rank][block] != wanted:
            raise ProofError(f"{what}: block {block} of rank {rank} holds {target[rank][block]:b}, not {wanted:b}")


def _before(op: str, size: int, root: int) -> State:
    if op in ("all_gather", "gather"):
        return [[1 << rank if block == rank else _NOTHING for block in range(size)] for rank in range(size)]
    if op in ("broadcast", "scatter"):
        return [[1 << block if rank == root else _NOTHING for block in range(size)] for rank in range(size)]
    if op == "all_to_all":
        return [[1 << (rank * size + block) for block in range(size)] for rank in range(size)]
    return [[1 << rank] * size for rank in range(size)]


def _inputs(op: str, size: int, root: int) -> set[tuple[int, int]]:
    """Return (rank, block) for every block whose memory the caller only gives, and which may be read-only."""
    if op in ("all_gather", "gather"):
        return {(rank, rank) for rank in range(size)}
    if op in ("broadcast", "scatter"):
        return {(root, block) for block in range(size)}
    return set()  # reductions work on copies, and `all_to_all` has a second buffer


def _after(op: str, size: int, root: int) -> Iterator[tuple[int, int, int]]:
    """Yield (rank, block, content) for every block that the operation defines."""
    everyone = (1 << size) - 1
    for rank in range(size):
        for block in range(size):
            if op == "all_reduce" or (op == "reduce" and rank == root) or (op == "reduce_scatter" and rank == block):
                yield rank, block, everyone
            elif op in ("all_gather", "broadcast") or (op, rank) in (("gather", root), ("scatter", block)):
                yield rank, block, 1 << block
            elif op == "all_to_all" and rank != block:
                yield rank, block, 1 << (block * size + rank)


class _Run:
    """One run of all ranks; messages between two ranks arrive in the order they were sent."""

    def __init__(
        self, what: str, programs: Sequence[Rounds], source: State, target: State, inputs: set[tuple[int, int]]
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
                row = self.source[rank]
                content = [row[block] for block in step.blocks] or [self.heard[rank]]
                self.wires[rank, step.to].append((step.blocks, content))
                yield step.to

    def _refuse_overlap(self, rank: int, steps: Round) -> None:
        """Raise if a block is replaced while it is on its way out: a transport may send straight from it."""
        replaced = {b for step in steps if isinstance(step, Recv) and not step.combine for b in step.blocks}
        if not replaced or self.source is not self.target:
            return
        for step in steps:
            if isinstance(step, Send) and not replaced.isdisjoint(step.blocks):
                raise ProofError(f"{self.what}: rank {rank} sends and replaces blocks {step.blocks} in one round")

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
            for block, value in zip(step.blocks, content, strict=True):
                self._put(rank, block, value, step)

    def _put(self, rank: int, block: int, value: int, step: Recv) -> None:
        row = self.target[rank]
        if (rank, block) in self.inputs:
            raise ProofError(f"{self.what}: rank {rank} receives block {block} into an input")
        if value == _NOTHING:
            raise ProofError(f"{self.what}: rank {step.source} sends block {block} before it has it")
        if step.combine and row[block] & value:
            raise ProofError(f"{self.what}: rank {rank} combines a contribution to block {block} twice")
        row[block] = row[block] | value if step.combine else value
