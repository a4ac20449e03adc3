"""Collectives of arrays of a device by way of the host: copied there, sent or reduced, and copied back.

What was put into the caller's current queue before the call comes first, and when the operation has ended its result is
there for every queue. Any device that can copy has them so, on any backend whose messages are of the host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rankwise.basics.deadline import Deadline
from rankwise.basics.devices import kind_of, on_device_of, to_device, to_host
from rankwise.collective.executor import PointToPoint
from rankwise.errors import DistTimeoutError

#: How much of an array is on the host at a time, where it can go piece by piece.
PIECE_NBYTES = 16 << 20

#: How often a queue that is still busy is looked at.
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 20e-6, 1e-3


#: A `Call`, which stands above, as it knows of this.
Call = Any


def staged(comm: PointToPoint, call: Call, derive: Callable[..., None]) -> Callable[[Deadline, Sequence[int]], None]:
    """Return how to do a collective of device arrays over messages of the host; the other ranks must stage too."""
    kind = kind_of(call.array)
    assert kind is not None
    call.remark = f" on {kind.name}"
    with on_device_of(call.array):
        is_done = kind.mark()

    def run(deadline: Deadline, counts: Sequence[int]) -> None:
        with on_device_of(call.array), kind.queue():
            _wait_for(is_done, deadline)
            for piece in _pieces(call):
                host = _on_host(piece, comm.rank)
                derive(comm, host, deadline, counts)
                _put_back(piece, host, comm.rank)

    return run


def _pieces(call: Call) -> Iterator[Call]:
    """Cut a call whose elements are all treated alike into some of fewer elements."""
    if call.op not in ("broadcast", "all_reduce", "reduce"):
        yield call
        return
    flat, step = call.array.reshape(-1), max(1, PIECE_NBYTES // call.array.itemsize)
    for begin in range(0, flat.size, step):
        yield replace(call, array=flat[begin : begin + step])


def _on_host(call: Call, rank: int) -> Call:
    """Return a call of copies on the host; what it only fills has no content yet."""
    comes_in = call.op in ("broadcast", "scatter") and rank != call.root
    array = _room(call.array) if comes_in or call.ins is not None else to_host(call.array)
    ins = None if call.ins is None else [to_host(each) for each in call.ins]
    outs = None if call.outs is None else [_room(each) for each in call.outs]
    return replace(call, array=array, ins=ins, outs=outs)


def _put_back(call: Call, host: Call, rank: int) -> None:
    """Copy what has come to the device."""
    if call.outs is not None and host.outs is not None:
        for out, came in zip(call.outs, host.outs, strict=True):
            to_device(out, came)
    elif rank == call.root if call.op in ("reduce", "gather") else call.op != "broadcast" or rank != call.root:
        to_device(call.array, host.array)


def _room(array: Any) -> np.ndarray[Any, Any]:
    return np.empty(array.shape, array.dtype)


def _wait_for(is_done: Callable[[], bool], deadline: Deadline) -> None:
    pause_s = _SHORTEST_PAUSE_S
    while not is_done():
        if deadline.expired():
            raise DistTimeoutError(f"the queue of the caller was not done within {deadline.timeout_s:g} s")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
