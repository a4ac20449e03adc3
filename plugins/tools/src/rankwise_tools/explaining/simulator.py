"""Virtual time: how long an algorithm takes on a network of a given latency and bandwidth.

The model is that of `Network`: a message takes `alpha_s` seconds to arrive, occupies the sender's link for `message_s`
and `beta_s` a byte, and the receiver's for as long, and a byte combined takes `gamma_s`. Each link carries one message
at a time in each direction, first come first served, so p-1 messages to one rank queue up there.

It runs the very rounds that are executed, and does some 100,000 messages a second. Algorithms with p log p messages
reach 100,000 ranks in half a minute; rings and all-pairs algorithms have p squared messages, and reach a thousand.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate

from rankwise.launching import Blocks, Recv, Rounds, Send, rooted
from rankwise_tools.explaining.costs import Network


def simulate(
    op: str,
    algorithm: Callable[..., Rounds],
    part_nbytes: Sequence[float],
    network: Network,
    root: int = 0,
) -> float:
    """Return the seconds until the last rank is done.

    Args:
        op: The operation.
        algorithm: The algorithm.
        part_nbytes: The size of each block, one for each rank.
        network: What messages and sums take.
        root: The root, for operations that have one.

    Raises:
        RuntimeError: The algorithm hangs.
    """
    size = len(part_nbytes)
    return _Links(part_nbytes, network).run([algorithm(rank, size, *rooted(op, root)) for rank in range(size)])


class _Links:
    """The links of all ranks, and the events to come: a rank that goes on, or a message that reaches a link."""

    def __init__(self, part_nbytes: Sequence[float], network: Network) -> None:
        size = len(part_nbytes)
        self.network = network
        #: Bytes before each block, so that a run of blocks costs one subtraction.
        self.before = list(accumulate(part_nbytes, initial=0.0))
        self.out_free, self.in_free = [0.0] * size, [0.0] * size
        #: When the messages of each pair that have come were complete.
        self.arrived: dict[tuple[int, int], deque[float]] = defaultdict(deque)
        #: For each rank the one whose message it is waiting for, or None.
        self.awaited: list[int | None] = [None] * size
        #: (time, number, rank, who has sent or None, seconds on the link); the number keeps the order of equals.
        self.events: list[tuple[float, int, int, int | None, float]] = []
        self.issued = 0

    def run(self, programs: Sequence[Rounds]) -> float:
        """Run all ranks to their ends, and return when the last was there."""
        ends: list[float] = []
        ranks = [self._rank(rank, program, ends) for rank, program in enumerate(programs)]
        for rank in range(len(ranks)):
            self._schedule(0.0, rank)
        while self.events:
            now, _, rank, source, busy_s = heappop(self.events)
            if source is not None:
                self.in_free[rank] = max(now, self.in_free[rank]) + busy_s
                self.arrived[source, rank].append(self.in_free[rank])
            if source == self.awaited[rank]:
                self.awaited[rank] = None
                next(ranks[rank], None)
        if len(ends) < len(ranks):
            raise RuntimeError("the algorithm stands still")
        return max(ends)

    def _rank(self, rank: int, program: Rounds, ends: list[float]) -> Iterator[None]:
        """Run one rank; pause where it waits for a message or for time to pass."""
        clock = 0.0
        for steps in program:
            combined = 0.0
            end = clock
            for step in steps:
                if isinstance(step, Send):
                    end = self._send(clock, rank, step)
            for step in steps:
                if isinstance(step, Recv):
                    messages = self.arrived[step.source, rank]
                    while not messages:
                        self.awaited[rank] = step.source
                        yield
                    end = max(end, messages.popleft())
                    combined += self._nbytes(step.blocks) if step.combine else 0.0
            clock = end + self.network.gamma_s * combined
            self._schedule(clock, rank)
            yield
        ends.append(clock)

    def _send(self, now: float, rank: int, step: Send) -> float:
        """Put a message on its way, and return when its last byte has left."""
        busy_s = self.network.message_s + self.network.beta_s * self._nbytes(step.blocks)
        begin = max(now, self.out_free[rank])
        self.out_free[rank] = begin + busy_s
        self._schedule(begin + self.network.alpha_s, step.to, rank, busy_s)
        return begin + busy_s

    def _schedule(self, when: float, rank: int, source: int | None = None, busy_s: float = 0.0) -> None:
        self.issued += 1
        heappush(self.events, (when, self.issued, rank, source, busy_s))

    def _nbytes(self, blocks: Blocks) -> float:
        if isinstance(blocks, range) and blocks.step == 1:
            return self.before[blocks.stop] - self.before[blocks.start]
        return sum(self.before[block + 1] - self.before[block] for block in blocks)
