"""Collectives that the product has not, described in steps: what a third party may add, for the tests of these."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rankwise.basics.reduce_op import ReduceOp
from rankwise.calls import check
from rankwise.calls.calling import carry_out, issued
from rankwise.collective.algorithms import Recv, Rounds, Send, rounds
from rankwise.collective.call import OPERATIONS, Call, Operation, same_parts, same_shape
from rankwise.collective.described import Described, Steps
from rankwise.groups.world import resolve


def chain(rank: int, size: int) -> Rounds:
    """Each rank combines what comes from the one before, and hands it on."""
    if rank > 0:
        yield (Recv(rank - 1, range(size), combine=True, left=True),)
    if rank < size - 1:
        yield (Send(rank + 1, range(size)),)


def mirrored(rank: int, size: int) -> Rounds:
    """Two messages each way in a round between a rank and its mirror image, the second of which is added."""
    peer = size - 1 - rank
    if peer != rank:
        sends = Send(peer, range(1)), Send(peer, range(1, 2))
        yield (*sends, Recv(peer, range(1)), Recv(peer, range(1, 2), combine=True))


def one_block(rank: int, size: int, root: int) -> Rounds:
    """The rounds of a broadcast whose array is one block."""
    for steps in rounds.broadcast_binomial(rank, size, root):
        yield tuple(step._replace(blocks=range(1)) for step in steps)


def _reduced(algorithm: Any, by: Steps, call: Call) -> None:
    assert call.reduce_op is not None
    total = by.accumulator(call.reduce_op, call.array)
    blocks = [total[total.size * i // by.size : total.size * (i + 1) // by.size] for i in range(by.size)]
    by.rounds(algorithm, blocks, blocks, call.reduce_op)
    by.finish(call.reduce_op, total, call.array)


def _told_all(by: Steps, call: Call) -> None:
    parts = call.outs or ()
    by.copy(parts[by.rank], call.array)
    flat = [part.reshape(-1) for part in parts]
    by.rounds(rounds.all_gather_bruck, flat, flat)


def _handed_down(by: Steps, call: Call) -> None:
    flat = call.array.reshape(-1)
    by.rounds(one_block, [flat], [flat], None, call.root)


def _swapped(by: Steps, call: Call) -> None:
    source, target = by.accumulator(ReduceOp.SUM, call.array), by.accumulator(ReduceOp.SUM, call.array)
    by.rounds(mirrored, [source, source], [target, target], ReduceOp.SUM)
    by.copy(call.array, target)


OPERATIONS["scan"] = Operation(same_shape, Described(partial(_reduced, chain)), reduces=True)
OPERATIONS["everywhere"] = Operation(
    same_shape, Described(partial(_reduced, rounds.all_reduce_recursive_doubling)), reduces=True
)
OPERATIONS["told_all"] = Operation(same_parts, Described(_told_all))
OPERATIONS["handed_down"] = Operation(same_shape, Described(_handed_down), rooted=True)
OPERATIONS["swapped"] = Operation(same_shape, Described(_swapped))


def _carry_out(name: str, array: Any, op: Any, root: int, outs: Any, group: Any, async_op: bool, timeout: Any) -> Any:
    """What the public functions do."""
    pg = resolve(group, name)
    if pg is None:
        return None
    plain = name, array, op, root, None, outs
    if async_op:
        if (work := issued(pg, "described", array, timeout, *plain)) is not None:
            return work
    elif pg.shortcuts.described(*plain, timeout):
        return None
    checked = check.output_array(pg, name, "tensor", array)
    reduction = None if op is None else check.reduce_op(pg, name, op, checked)
    return carry_out(pg, Call(name, checked, reduction, root, outs=outs), array, async_op, timeout)


def scan(array: Any, op: ReduceOp, group: Any = None, async_op: bool = False, timeout: Any = None) -> Any:
    """Reduce the arrays of this rank and all before it, in place."""
    return _carry_out("scan", array, op, -1, None, group, async_op, timeout)


def everywhere(array: Any, op: ReduceOp, group: Any = None, async_op: bool = False, timeout: Any = None) -> Any:
    """Reduce the arrays of all ranks, in place."""
    return _carry_out("everywhere", array, op, -1, None, group, async_op, timeout)


def told_all(outs: Sequence[Any], array: Any, group: Any = None, async_op: bool = False, timeout: Any = None) -> Any:
    """Copy what each rank has to all."""
    return _carry_out("told_all", array, None, -1, outs, group, async_op, timeout)


def handed_down(array: Any, root: int, group: Any = None, async_op: bool = False, timeout: Any = None) -> Any:
    """Copy the array of a group's rank to all."""
    return _carry_out("handed_down", array, None, root, None, group, async_op, timeout)


def swapped(array: Any, group: Any = None, async_op: bool = False, timeout: Any = None) -> Any:
    """Take twice the array of the mirror image, unless that is this rank."""
    return _carry_out("swapped", array, None, -1, None, group, async_op, timeout)
