"""What the algorithms cost, counted from their rounds."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from rankwise.launching import Blocks, Recv, Rounds, Send, rooted
from rankwise_tools.explaining.algorithms import ALGORITHMS


class Cost(NamedTuple):
    """What one rank does: rounds, and bytes sent; and, on a network, for how long if nobody keeps it waiting."""

    rounds: int
    nbytes: int
    seconds: float


class Network(NamedTuple):
    """Seconds for a message to arrive, for each byte on a link, for each byte combined, and for a message on a link.

    Without the last, which a message takes however small it is, many small messages would be free.
    """

    alpha_s: float
    beta_s: float
    gamma_s: float
    message_s: float = 0.0


_FREE = Network(0.0, 0.0, 0.0)


def costs(op: str, name: str, size: int, part_nbytes: list[int], root: int = 0) -> list[Cost]:
    """Return what each rank does in one run, counted from the rounds themselves.

    Args:
        op: The operation.
        name: The algorithm.
        size: Number of ranks.
        part_nbytes: Size of each block.
        root: The root, for operations that have one.
    """
    return _costs(op, name, part_nbytes, range(size), _FREE, root)


def reckoned(op: str, name: str, part_nbytes: list[int], network: Network) -> list[Cost]:
    """Return what some ranks do, among them the root, where there are too many for all.

    In most algorithms all ranks do the same in each round, so that the time of one that nobody keeps waiting is that of
    all. Trees are the exception: on the longest way through one each rank waits for the one before.
    """
    size = len(part_nbytes)
    return _costs(op, name, part_nbytes, sorted({0, 1 % size, size // 2, size - 1}), network, 0)


def _costs(op: str, name: str, parts: list[int], ranks: Iterable[int], network: Network, root: int) -> list[Cost]:
    before = list(accumulate(parts, initial=0))
    make = ALGORITHMS[op][name]
    return [_cost(make(rank, len(parts), *rooted(op, root)), before, network) for rank in ranks]


def _cost(rounds: Rounds, before: list[int], network: Network) -> Cost:
    count = nbytes = 0
    seconds = 0.0
    for steps in rounds:
        count += 1
        sent = [_nbytes(step.blocks, before) for step in steps if isinstance(step, Send)]
        out = sum(sent)
        received = [(_nbytes(step.blocks, before), step.combine) for step in steps if isinstance(step, Recv)]
        nbytes += out
        seconds += network.alpha_s * bool(steps) + network.message_s * max(len(sent), len(received))
        seconds += network.beta_s * max(out, sum(come for come, _ in received))
        seconds += network.gamma_s * sum(come for come, combine in received if combine)
    return Cost(count, nbytes, seconds)


def _nbytes(blocks: Blocks, before: list[int]) -> int:
    if isinstance(blocks, range) and blocks.step == 1:
        return before[blocks.stop] - before[blocks.start]
    return sum(before[block + 1] - before[block] for block in blocks)
