"""The binomial tree of MPI: rank r, counted from the root, is the child of r with its lowest set bit cleared."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["binomial_children", "binomial_parent", "subtree"]


def binomial_parent(rank: int, size: int, root: int) -> int | None:
    """Return the parent, or None for the root."""
    me = (rank - root) % size
    return None if me == 0 else (me - (me & -me) + root) % size


def binomial_children(rank: int, size: int, root: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the children with the ranks below them, the largest subtree first."""
    me = (rank - root) % size
    reach = _reach(me, size)
    while reach > 1:
        reach //= 2
        if me + reach < size:
            yield (me + reach + root) % size, subtree((me + reach + root) % size, size, root)


def subtree(rank: int, size: int, root: int) -> tuple[int, ...]:
    """Return a rank and all below it."""
    me = (rank - root) % size
    return tuple((r + root) % size for r in range(me, min(me + _reach(me, size), size)))


def _reach(me: int, size: int) -> int:
    """Return how many ranks the subtree of `me` has room for: its lowest set bit, or the whole tree for the root."""
    if me:
        return me & -me
    return 1 << (size - 1).bit_length()
