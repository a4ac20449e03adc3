"""Virtual time: how long an algorithm takes on a network of a given latency and bandwidth.

The model is alpha, beta, gamma: a message costs `alpha_s` seconds, a byte `beta_s` on the sender's link and again on
the receiver's, both of which carry one message at a time in each direction, and a byte combined `gamma_s`. It runs
the very rounds that are executed, for thousands of ranks; all-pairs algorithms have p squared messages, and take as
long to simulate.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import accumulate

from rankwise.algorithms.steps import Recv, Round, Rounds, Send
from rankwise.algorithms.table import rooted

__all__ = ["simulate"]


def simulate(
    op: str,
    algorithm: Callable[..., Rounds],
    part_nbytes: Sequence[float],
    alpha_s: float,
    beta_s: float,
    gamma_s: float,
    root: int = 0,
) -> float:
    """Return the seconds until the last rank is done.

    Args:
        op: The operation.
        algorithm: The algorithm.
        part_nbytes: The size of each block, one for each rank.
        alpha_s: Seconds for each message.
        beta_s: Seconds for each byte on a link.
        gamma_s: Seconds for each byte combined.
        root: The root, for operations that have one.
    """
    size = len(part_nbytes)
    network = _Network(part_nbytes, alpha_s, beta_s, gamma_s)
    programs = [algorithm(rank, size, *rooted(op, root)) for rank in range(size)]
    current: list[Round | None] = [None] * size
    ready = deque(range(size))
    while ready:
        rank = ready.popleft()
        steps = current[rank]
        if steps is None:
            steps = current[rank] = next(programs[rank], None)
            if steps is None:
                continue
            ready.extend(network.send(rank, steps))
        if network.receive(rank, steps):
            current[rank] = None
            ready.append(rank)
    return max(network.clock)


class _Network:
    def __init__(self, part_nbytes: Sequence[float], alpha_s: float, beta_s: float, gamma_s: float) -> None:
        size = len(part_nbytes)
        self.alpha_s, self.beta_s, self.gamma_s = alpha_s, beta_s, gamma_s
        #: Bytes before each block, so that a run of blocks costs one subtraction.
        self.before = list(accumulate(part_nbytes, initial=0.0))
        self.clock, self.out_free, self.in_free = [0.0] * size, [0.0] * size, [0.0] * size
        self.wires: dict[tuple[int, int], deque[float]] = defaultdict(deque)

    def send(self, rank: int, steps: Round) -> list[int]:
        """Put a round's messages on the wire, and return whom they go to."""
        targets = []
        for step in steps:
            if isinstance(step, Send):
                begin = max(self.out_free[rank], self.clock[rank])
                self.out_free[rank] = begin + self.beta_s * self._nbytes(step)
                self.wires[rank, step.to].append(self.out_free[rank] + self.alpha_s)
                targets.append(step.to)
        return targets

    def receive(self, rank: int, steps: Round) -> bool:
        """End a round if all its messages are on the wire; tell whether they are."""
        receives = [step for step in steps if isinstance(step, Recv)]
        if not all(self.wires[step.source, rank] for step in receives):
            return False
        for step in receives:
            nbytes = self._nbytes(step)
            arrival = self.wires[step.source, rank].popleft()
            self.in_free[rank] = max(self.in_free[rank] + self.beta_s * nbytes, arrival)
            combining = self.gamma_s * nbytes if step.combine else 0.0
            self.clock[rank] = max(self.clock[rank], self.in_free[rank]) + combining
        return True

    def _nbytes(self, step: Send | Recv) -> float:
        if isinstance(step.blocks, range):
            return self.before[step.blocks.stop] - self.before[step.blocks.start]
        return sum(self.before[block + 1] - self.before[block] for block in step.blocks)
