"""How one rank's array comes into the shared memory of all hosts: to each host once, and there into all blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import rankwise as dist
from rankwise_arrays.fences import fence
from rankwise_arrays.messages import tag_for
from rankwise_arrays.shared.hosts import Company
from rankwise_arrays.waits import wait_all

#: Hosts pass an array on from one to the next in pieces, so that each receives one while it sends the one before.
_PIECE_NBYTES = 4 << 20
_TAG_NUMBER = 41


def spread(given: Any, mine: Any, heads: Any, company: Company) -> None:
    """Fill this rank's array with what the first head has.

    Args:
        given: The array, on the first head.
        mine: This rank's array.
        heads: The array of the head of this host, which may be the same.
        company: Who is where.
    """
    if company.rank == company.heads[0]:
        np.copyto(mine, given)
    if company.rank in company.heads and len(company.heads) > 1:
        _pass_on(mine, company)
    fence(company.group)
    if company.rank != company.head and heads is not mine:
        np.copyto(mine, heads)


def _pass_on(array: Any, company: Company) -> None:
    """Receive from the host before, and send to the one behind."""
    place, last = company.heads.index(company.rank), len(company.heads) - 1
    tag, going = tag_for(company.group, _TAG_NUMBER), []
    for piece in _pieces(array):
        if place > 0:
            dist.recv(piece, company.heads[place - 1], company.group, tag)
        if place < last:
            going.append(dist.isend(piece, company.heads[place + 1], company.group, tag))
    wait_all(going)


def _pieces(array: Any) -> Iterator[Any]:
    raw = np.asarray(array).reshape(-1).view(np.uint8)
    for at in range(0, raw.size, _PIECE_NBYTES):
        yield raw[at : at + _PIECE_NBYTES]
