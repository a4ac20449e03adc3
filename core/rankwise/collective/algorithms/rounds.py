"""The rounds of all algorithms, a family for each operation, named after both.

Docstrings tell what they cost p ranks with N bytes in p blocks, which may differ in size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rankwise.collective.algorithms import Recv, Rounds, Send, distances, fold, one

# The binomial tree of MPI: rank r, counted from the root, is the child of r with its lowest set bit cleared.


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


# scatter: block i of rank i ends up as block i of the root; other blocks are scratch.


def scatter_flat(rank: int, size: int, root: int) -> Rounds:
    """Let the root send each block to its owner.

    Rounds: 1. Bytes sent: N less the root's block, by the root.
    """
    if rank != root:
        yield (Recv(root, one(rank, size)),)
    elif size > 1:
        yield tuple(Send((root + k) % size, one(root + k, size)) for k in range(1, size))


def scatter_binomial(rank: int, size: int, root: int) -> Rounds:
    """Send along a tree the blocks of whole subtrees.

    Rounds: at most ceil(log2 p). Bytes sent: to each child the blocks of its subtree.
    """
    parent = binomial_parent(rank, size, root)
    if parent is not None:
        yield (Recv(parent, subtree(rank, size, root)),)
    for child, below in binomial_children(rank, size, root):
        yield (Send(child, below),)


# gather: block i of the root ends up as block i of rank i; other ranks' other blocks are scratch.


def gather_flat(rank: int, size: int, root: int) -> Rounds:
    """Let everyone send to the root.

    Rounds: 1. Bytes sent: the own block.
    """
    if rank != root:
        yield (Send(root, one(rank, size)),)
    elif size > 1:
        yield tuple(Recv((root + k) % size, one(root + k, size)) for k in range(1, size))


def gather_binomial(rank: int, size: int, root: int) -> Rounds:
    """Send along a tree the blocks of whole subtrees.

    Rounds: at most ceil(log2 p). Bytes sent: the blocks of the own subtree.
    """
    for child, below in reversed(list(binomial_children(rank, size, root))):
        yield (Recv(child, below),)
    parent = binomial_parent(rank, size, root)
    if parent is not None:
        yield (Send(parent, subtree(rank, size, root)),)


# all_gather: block i of every rank ends up as block i of rank i.


def all_gather_ring(rank: int, size: int) -> Iterator[tuple[Send, Recv]]:
    """Pass every block once around a ring.

    Rounds: p-1. Bytes sent: N less the right neighbour's block.
    """
    right, left = (rank + 1) % size, (rank - 1) % size
    for k in range(size - 1):
        yield Send(right, one(rank - k, size)), Recv(left, one(rank - k - 1, size))


def all_gather_direct(rank: int, size: int) -> Rounds:
    """Send the own block to everyone.

    Rounds: 1. Bytes sent: p-1 times the own block.
    """
    others = [(rank + k) % size for k in range(1, size)]
    if others:
        mine = one(rank, size)
        yield (*(Send(other, mine) for other in others), *(Recv(other, one(other, size)) for other in others))


def all_gather_bruck(rank: int, size: int) -> Iterator[tuple[Send, Recv]]:
    """Send all that is there to ranks at distances 1, 2, 4, ...

    Rounds: ceil(log2 p). Bytes sent: p-1 blocks. Best for small N.
    """
    for distance in distances(size):
        count = min(distance, size - distance)
        have = tuple((rank - i) % size for i in range(count))
        come = tuple((rank - distance - i) % size for i in range(count))
        yield Send((rank + distance) % size, have), Recv((rank - distance) % size, come)


# reduce_scatter: block i of rank i ends up as the reduction of everyone's block i; other blocks are scratch.


def reduce_scatter_ring(rank: int, size: int) -> Rounds:
    """Pass each block once around a ring that ends at its owner, reducing on the way.

    Rounds: p-1. Bytes sent: N less the own block.
    """
    right, left = (rank + 1) % size, (rank - 1) % size
    for k in range(1, size):
        yield Send(right, one(rank - k, size)), Recv(left, one(rank - k - 1, size), combine=True)


def reduce_scatter_direct(rank: int, size: int) -> Rounds:
    """Send each block straight to its owner.

    Rounds: 1. Bytes sent: N less the own block.
    """
    others = [(rank + k) % size for k in range(1, size)]
    if others:
        mine = one(rank, size)
        sends = (Send(other, one(other, size)) for other in others)
        # In rank order, so that the result does not depend on who is the owner or the faster.
        yield (*sends, *(Recv(other, mine, combine=True) for other in sorted(others)))


def reduce_scatter_pat(rank: int, size: int) -> Rounds:
    """Send half of what is left to add up, then a quarter, ...: `all_gather_bruck` backwards, with sums on the way.

    Each block goes up a tree of its own to its owner, and the trees' messages between two ranks are one, as in NCCL's
    parallel aggregated trees. Rounds: ceil(log2 p). Bytes sent: N less the own block. Best for many ranks.
    """
    for distance in reversed(distances(size)):
        count = min(distance, size - distance)
        give = tuple((rank + distance + i) % size for i in range(count))
        keep = tuple((rank + i) % size for i in range(count))
        yield Send((rank + distance) % size, give), Recv((rank - distance) % size, keep, combine=True)


# all_reduce: every block of every rank ends up as the reduction over all ranks.


def all_reduce_ring(rank: int, size: int) -> Rounds:
    """Pass blocks around a ring, first to reduce, then to gather them.

    Rounds: 2(p-1). Bytes sent: 2(p-1)/p N. Each rank talks to one neighbour only: best for very large N.
    """
    yield from reduce_scatter_ring(rank, size)
    yield from all_gather_ring(rank, size)


def all_reduce_two_shot(rank: int, size: int) -> Rounds:
    """Give each rank its block of everyone, and everyone the reduced blocks.

    Rounds: 2. Bytes sent: 2(p-1)/p N. All pairs at the same time: best for few ranks.
    """
    yield from reduce_scatter_direct(rank, size)
    yield from all_gather_direct(rank, size)


def all_reduce_recursive_doubling(rank: int, size: int) -> Rounds:
    """Exchange everything with partners at distances 1, 2, 4, ...

    Rounds: log2 p, and 2 more if p is no power of two. Bytes sent: up to N log2 p (+ N). Best for small N.
    """

    def rules(me: int, power: int, real: Callable[[int], int]) -> Rounds:
        everything = range(size)
        for distance in distances(power):
            partner = real(me ^ distance)
            yield Send(partner, everything), Recv(partner, everything, combine=True, left=bool(me & distance))

    return fold(rank, size, rules)


def all_reduce_pat(rank: int, size: int) -> Rounds:
    """Reduce each block on the way up a tree of its own, and gather the blocks on the way down.

    Rounds: 2 ceil(log2 p). Bytes sent: 2(p-1)/p N, as on a ring. Best for many ranks.
    """
    yield from reduce_scatter_pat(rank, size)
    yield from all_gather_bruck(rank, size)


# broadcast: every block of every rank ends up as the root's.


def broadcast_flat(rank: int, size: int, root: int) -> Rounds:
    """Let the root send to everyone.

    Rounds: 1. Bytes sent: (p-1) N by the root.
    """
    everything = range(size)
    if rank != root:
        yield (Recv(root, everything),)
    elif size > 1:
        yield tuple(Send((root + k) % size, everything) for k in range(1, size))


def broadcast_binomial(rank: int, size: int, root: int) -> Rounds:
    """Send along a tree in which each rank that has the data sends to one that has not.

    Rounds: at most ceil(log2 p). Bytes sent: N to each child, of which the root has ceil(log2 p).
    """
    everything = range(size)
    parent = binomial_parent(rank, size, root)
    if parent is not None:
        yield (Recv(parent, everything),)
    for child, _ in binomial_children(rank, size, root):
        yield (Send(child, everything),)


# reduce: every block of the root ends up as the reduction over all ranks; those of others are scratch.


def reduce_binomial(rank: int, size: int, root: int) -> Rounds:
    """Combine along a tree.

    Rounds: at most ceil(log2 p). Bytes sent: N. Best for small N.
    """
    everything = range(size)
    for child, _ in reversed(list(binomial_children(rank, size, root))):
        yield (Recv(child, everything, combine=True),)
    parent = binomial_parent(rank, size, root)
    if parent is not None:
        yield (Send(parent, everything),)


def reduce_scatter_gather(rank: int, size: int, root: int) -> Rounds:
    """Reduce each block at its owner, then gather the blocks at the root.

    Rounds: at most 1 + ceil(log2 p). Bytes sent: about N. Best for large N.
    """
    yield from reduce_scatter_direct(rank, size)
    yield from gather_binomial(rank, size, root)


def reduce_pat_gather(rank: int, size: int, root: int) -> Rounds:
    """Reduce each block on the way up a tree of its own to its owner, then gather the blocks at the root.

    Rounds: at most 2 ceil(log2 p). Bytes sent: about 2N. Best for large N and many ranks.
    """
    yield from reduce_scatter_pat(rank, size)
    yield from gather_binomial(rank, size, root)


# all_to_all: block j of rank i goes to rank j, where it is block i of the output. Blocks may differ in size. The only
# family with two buffers: a send names a block of the input, a receive one of the output.


def all_to_all_direct(rank: int, size: int) -> Rounds:
    """Exchange with all others at the same time.

    Rounds: 1. Bytes sent: the input less the own block. Best for few ranks or small blocks.
    """
    if size > 1:
        targets = [(rank + k) % size for k in range(1, size)]
        sources = [(rank - k) % size for k in range(1, size)]
        yield (*(Send(t, one(t, size)) for t in targets), *(Recv(s, one(s, size)) for s in sources))


def all_to_all_pairwise(rank: int, size: int) -> Rounds:
    """Exchange with one other at a time, at rising distances.

    Rounds: p-1. Bytes sent: the input less the own block. In a round no rank is sent to by two.
    """
    for k in range(1, size):
        target, source = (rank + k) % size, (rank - k) % size
        yield Send(target, one(target, size)), Recv(source, one(source, size))


# barrier: no rank leaves before every rank has come. What the messages carry does not matter.


def barrier_dissemination(rank: int, size: int) -> Rounds:
    """Signal ranks at distances 1, 2, 4, ... (Hensgen, Finkel and Manber).

    Rounds: ceil(log2 p). Messages sent: as many.
    """
    distance = 1
    while distance < size:
        yield Send((rank + distance) % size, ()), Recv((rank - distance) % size, ())
        distance *= 2
