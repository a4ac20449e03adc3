"""Two binary trees used together (Sanders, Speck and Träff): half of the blocks goes along each, in segments.

A rank that has children in one tree has none in the other, so that both directions of its link carry data all the time.
The trees are in-order: node v of 1..m has as many levels below it as v has zeros at the end of its binary number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rankwise.collective.algorithms import Recv, Rounds, Send

#: How many segments a half has for each level of a tree: more fill the links better, and are more messages.
_SEGMENTS_A_LEVEL = 2


class _Node(NamedTuple):
    """Where a rank is in one of the trees.

    Attributes:
        parent: The rank above it, or None.
        children: Those below it.
        depth: How far below the top it is, and how deep the whole tree is at the most.
        segments: The blocks that go along this tree, in the order in which they do.
    """

    parent: int | None
    children: Sequence[int]
    depth: int
    levels: int
    segments: Sequence[range]


def broadcast(rank: int, size: int, root: int) -> Rounds:
    """Send from the root to the tops of both trees, and down.

    Rounds: at most 3 ceil(log2 p) + 1. Bytes sent: at most N. Best for large N.
    """
    yield from _run(_rooted(rank, size, root), up=False, down=True)


def reduce(rank: int, size: int, root: int) -> Rounds:
    """Combine up both trees, to the root.

    Rounds: at most 3 ceil(log2 p) + 1. Bytes sent: at most N. Best for large N.
    """
    yield from _run(_rooted(rank, size, root), up=True, down=False)


def all_reduce(rank: int, size: int) -> Rounds:
    """Combine up both trees, and send down.

    Rounds: at most 4 ceil(log2 p) + 2. Bytes sent: at most 2N.
    """
    yield from _run([_place(tree, rank, 0, size, size) for tree in range(2)], up=True, down=True)


def _run(places: Iterable[_Node], up: bool, down: bool) -> Rounds:
    """Do what is due in each of the trees, round by round: a segment moves on by one level in each.

    Nobody waits for the rounds of others; their numbers only say in which order a rank takes its messages.
    """
    due: dict[int, list[Send | Recv]] = {}
    for parent, children, depth, levels, segments in places:
        for number, blocks in enumerate(segments):
            combined = number + levels - depth
            come = number + depth + (levels + 1 if up else 0)
            if up:
                due.setdefault(combined, []).extend(Recv(child, blocks, combine=True) for child in children)
                if parent is not None:
                    due.setdefault(combined + 1, []).append(Send(parent, blocks))
            if down:
                if parent is not None:
                    due.setdefault(come, []).append(Recv(parent, blocks))
                due.setdefault(come + 1, []).extend(Send(child, blocks) for child in children)
    for number in sorted(due):
        if due[number]:
            yield tuple(due[number])


def _rooted(rank: int, size: int, root: int) -> list[_Node]:
    """Return a rank's places in two trees of all others, above whose tops is the root."""
    return [_place(tree, rank, root, size, size - 1) for tree in range(2)]


def _place(tree: int, rank: int, root: int, size: int, nodes: int) -> _Node:
    """Return the place of a rank; of as many nodes as ranks all are in the tree, else the root stands above it."""
    rooted = nodes < size
    levels = nodes.bit_length() + rooted
    half = range(size // 2) if tree else range(size // 2, size)
    count = min(len(half), max(1, _SEGMENTS_A_LEVEL * levels))
    segments = [half[len(half) * i // count : len(half) * (i + 1) // count] for i in range(count)]
    me = (rank - root) % size + (not rooted)

    def name(number: int) -> int:
        return (_turned(tree, number, nodes, -1) + root - (not rooted)) % size

    top = 1 << max(nodes.bit_length() - 1, 0)
    if me == 0:
        return _Node(None, [name(top)] if nodes else [], 0, levels, segments)
    node, depth = _turned(tree, me, nodes, 1), int(rooted)
    above = _parent(node, nodes)
    parent = name(above) if above else root if rooted else None
    children = [name(child) for child in _children(node, nodes)]
    while above:
        above, depth = _parent(above, nodes), depth + 1
    return _Node(parent, children, depth, levels, segments)


def _turned(tree: int, node: int, nodes: int, way: int) -> int:
    """Return the number in a tree of a node, or back: in the second the others have children."""
    if tree == 0:
        return node
    return nodes + 1 - node if nodes % 2 == 0 else (node - 1 + way) % nodes + 1


def _parent(node: int, nodes: int) -> int:
    """Return the parent of a node in the in-order tree of 1..nodes; 0 for the top."""
    level = node & -node
    while level <= nodes:
        node = node - level if node & 2 * level else node + level
        level *= 2
        if node <= nodes:
            return node
    return 0


def _children(node: int, nodes: int) -> list[int]:
    """Return the children of a node."""
    level = (node & -node) // 2
    if not level:
        return []
    found = [node - level]
    while level and node + level > nodes:
        level //= 2
    return [*found, node + level] if level else found
