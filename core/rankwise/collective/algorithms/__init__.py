"""Collectives as data: pure functions from (rank, size) to rounds of transfers, which know no transport.

A buffer is cut into `size` numbered blocks. An algorithm yields rounds, each a tuple of steps that run together. A send
reads the buffer as it was when the round began, and no round replaces a block that it sends. What arrives is combined
when the round ends, in the order of the steps, so the result does not depend on timing.

The same rounds are proved by `proof`, run in virtual time by `simulator`, and executed by `collective.derived` over any
backend's `isend` and `irecv`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

#: The numbers of the blocks that one message carries, in the order in which it carries them.
Blocks: TypeAlias = "range | tuple[int, ...]"


class Send(NamedTuple):
    """Send `blocks` to rank `to`."""

    to: int
    blocks: Blocks


class Recv(NamedTuple):
    """Receive `blocks` from rank `source`, and replace what is there or combine with it.

    With `left`, what arrives is the left operand. Two ranks that combine each other's data must agree about that:
    even min(0.0, -0.0) depends on the order.
    """

    source: int
    blocks: Blocks
    combine: bool = False
    left: bool = False


Round: TypeAlias = "tuple[Send | Recv, ...]"
Rounds: TypeAlias = Iterator[Round]
#: Rounds of a smaller world: given a rank in it, its size, and the translation to real ranks.
Rules: TypeAlias = Callable[[int, int, Callable[[int], int]], Rounds]


def one(block: int, size: int) -> range:
    """Return the single block `block` modulo `size`."""
    return range(block % size, block % size + 1)


def distances(size: int) -> list[int]:
    """Return 1, 2, 4, ... below `size`."""
    return [1 << i for i in range((size - 1).bit_length())]


def fold(rank: int, size: int, rules: Rules) -> Rounds:
    """Run `rules`, made for powers of two, on a world of any size.

    The ranks beyond the largest power of two hand their data to a neighbour first and get the result back at the
    end: 2 more rounds, and N more bytes for some.
    """
    power = 1 << (size.bit_length() - 1)
    extra, everything = size - power, range(size)
    guest, host = rank < 2 * extra and rank % 2 == 1, rank < 2 * extra and rank % 2 == 0
    if guest:
        yield (Send(rank - 1, everything),)
        yield (Recv(rank - 1, everything),)
        return
    if host:
        yield (Recv(rank + 1, everything, combine=True),)
    virtual = rank // 2 if host else rank - extra
    yield from rules(virtual, power, lambda v: 2 * v if v < extra else v + extra)
    if host:
        yield (Send(rank + 1, everything),)
