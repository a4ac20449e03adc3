"""The two sides of a message: its array, the other rank, and what carries it, once all of that has been checked."""

from __future__ import annotations

from typing import Any

from rankwise.backends.communicator import Communicator
from rankwise.basics.arrays import Array, device_of
from rankwise.calls import check
from rankwise.groups.process_group import ProcessGroup
from rankwise.groups.ranks import group_rank

__all__ = ["incoming", "outgoing"]


def outgoing(
    pg: ProcessGroup, op: str, tensor: Any, dst: int | None, group_dst: int | None, tag: int
) -> tuple[Array, int, Communicator]:
    """Return the array of a send, the receiver's rank in the group, and what carries it; refuse what cannot be."""
    peer = group_rank(pg, "dst", dst, group_dst)
    array = check.input_array(pg, op, "tensor", tensor)
    if tag:
        pg.require_feature("tags", device_of(array), op)
    return array, peer, pg.lane(array, "send")


def incoming(
    pg: ProcessGroup, op: str, tensor: Any, src: int | None, group_src: int | None, tag: int
) -> tuple[Array, int | None, Communicator]:
    """Return the array of a receive, the sender's rank in the group, and what carries it; refuse what cannot be."""
    array = check.output_array(pg, op, "tensor", tensor)
    peer = None if src is None and group_src is None else group_rank(pg, "src", src, group_src)
    if peer is None:
        pg.require_feature("any_source", device_of(array), op)
    if tag:
        pg.require_feature("tags", device_of(array), op)
    return array, peer, pg.lane(array, "recv")
