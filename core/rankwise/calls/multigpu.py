"""Collectives over several arrays per rank, usually one on each of the process's devices.

Each is one collective of the group with a local step before and after it, so it runs on every backend and on every kind
of device. A communicator that has such collectives itself, whose members are the devices, takes over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import Any, Protocol

import numpy as np

from rankwise.backends.communicator import Communicator
from rankwise.basics.arrays import AnyArray, Array, as_array
from rankwise.basics.reduce_op import ReduceOp
from rankwise.basics.tracebacks import shortened
from rankwise.basics.work import Work
from rankwise.calls import check
from rankwise.calls.calling import finish, terms
from rankwise.calls.combined import CombinedWork
from rankwise.calls.devices import assign, near, on, stacked, synchronize
from rankwise.groups.process_group import GroupLike, ProcessGroup
from rankwise.groups.ranks import group_rank
from rankwise.groups.world import resolve

__all__ = [
    "DeviceCollectives",
    "all_gather_multigpu",
    "all_reduce_multigpu",
    "broadcast_multigpu",
    "reduce_multigpu",
    "reduce_scatter_multigpu",
]


class DeviceCollectives(Protocol):
    """What a communicator may have besides: its method `multigpu(devices)` returns this, or None if not for these.

    Each device comes once. `arrays[i]` and row i of `outputs` or `inputs` lie on device i; all are of one size and
    dtype. Roots are group ranks, with the position of their array.
    """

    def broadcast(self, arrays: Sequence[Array], root: int, index: int, timeout_s: float) -> Work:
        """Copy the root's `arrays[index]` into all arrays."""

    def all_reduce(self, arrays: Sequence[Array], op: ReduceOp, timeout_s: float) -> Work:
        """Reduce all arrays into each of them."""

    def reduce(self, arrays: Sequence[Array], op: ReduceOp, root: int, index: int, timeout_s: float) -> Work:
        """Reduce all arrays into the root's `arrays[index]`."""

    def all_gather(self, outputs: Sequence[Sequence[Array]], arrays: Sequence[Array], timeout_s: float) -> Work:
        """Copy all arrays into each row of `outputs`."""

    def reduce_scatter(
        self, outputs: Sequence[Array], inputs: Sequence[Sequence[Array]], op: ReduceOp, timeout_s: float
    ) -> Work:
        """Reduce the rows of all members, and leave one entry of the result in each output."""


def broadcast_multigpu(
    tensor_list: Sequence[AnyArray], src: int, group: GroupLike = None, async_op: bool = False, src_tensor: int = 0
) -> Work | None:
    """Copy `tensor_list[src_tensor]` of the source into every array of every rank.

    Args:
        tensor_list: This rank's arrays, usually one on each device; of one dtype and size on all ranks. The ranks may
            have different numbers of them.
        src: The source, as a global rank.
        group: The group; None is the default group.
        async_op: Return at once with a `Work`, rather than when this rank is done.
        src_tensor: Which of the source's arrays; the same on all ranks.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        ValueError: The list is empty, its arrays differ, or it has no such array.
        CollectiveMismatchError: The ranks do not agree about source, dtype or size.

    Examples:
        >>> arrays = [np.full(2, 10 * rank), np.full(2, 10 * rank + 1)]
        >>> dist.broadcast_multigpu(arrays, src=1, src_tensor=1)
        >>> arrays
        [array([11, 11]), array([11, 11])]
    """
    with shortened:
        pg = resolve(group, "broadcast_multigpu")
        if pg is None:
            return None
        arrays = _local(pg, "broadcast_multigpu", "tensor_list", tensor_list)
        root = group_rank(pg, "src", src, None)
        # All ranks use their first device: on some backends each device has connections of its own.
        carrier = arrays[0]
        lane = pg.lane(carrier, "broadcast")
        native = _native(lane, arrays)
        if native is not None:
            index = _index(pg, "broadcast_multigpu", "src_tensor", src_tensor, arrays)
            timeout_s, _ = terms(pg, carrier, "broadcast", async_op, None)
            return finish(pg, native.broadcast(arrays, root, index, timeout_s), tensor_list, async_op)
        if root == pg.rank() and (index := _index(pg, "broadcast_multigpu", "src_tensor", src_tensor, arrays)):
            assign(carrier, arrays[index])

        def after() -> None:
            for array in arrays[1:]:
                assign(array, carrier)

        work = lane.broadcast(carrier, root, *terms(pg, carrier, "broadcast", async_op, None))
        return finish(pg, _then(work, after, *arrays), tensor_list, async_op)


def all_reduce_multigpu(
    tensor_list: Sequence[AnyArray], op: ReduceOp = ReduceOp.SUM, group: GroupLike = None, async_op: bool = False
) -> Work | None:
    """Reduce all arrays of all ranks, and leave the result in every one of them.

    Args:
        tensor_list: This rank's arrays, usually one on each device; of one dtype and size on all ranks. The ranks may
            have different numbers of them.
        op: How to reduce.
        group: The group; None is the default group.
        async_op: Return at once with a `Work`, rather than when this rank is done.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        ValueError: The list is empty, or its arrays differ.
        CollectiveMismatchError: The ranks do not agree about op, dtype or size.
        UnsupportedOperationError: The backend does not reduce this dtype with `op`.

    Examples:
        >>> arrays = [np.ones(2), np.ones(2)]
        >>> dist.all_reduce_multigpu(arrays)
        >>> arrays
        [array([4., 4.]), array([4., 4.])]
    """
    with shortened:
        pg = resolve(group, "all_reduce_multigpu")
        if pg is None:
            return None
        arrays = _local(pg, "all_reduce_multigpu", "tensor_list", tensor_list)
        native = _native(_lane(pg, "all_reduce", arrays, op), arrays)
        if native is not None:
            timeout_s, _ = terms(pg, arrays[0], "all_reduce", async_op, None)
            return finish(pg, native.all_reduce(arrays, op, timeout_s), tensor_list, async_op)
        lane, total, inner = _reduced_here(pg, "all_reduce", arrays, op)

        def after() -> None:
            _finish(op, total, arrays[0])
            for array in arrays[1:]:
                assign(array, arrays[0])

        work = lane.all_reduce(total, inner, *terms(pg, total, "all_reduce", async_op, None))
        return finish(pg, _then(work, after, *arrays), tensor_list, async_op)


def reduce_multigpu(
    tensor_list: Sequence[AnyArray],
    dst: int,
    op: ReduceOp = ReduceOp.SUM,
    group: GroupLike = None,
    async_op: bool = False,
    dst_tensor: int = 0,
) -> Work | None:
    """Reduce all arrays of all ranks into `tensor_list[dst_tensor]` of the destination.

    Args:
        tensor_list: This rank's arrays, usually one on each device; of one dtype and size on all ranks. The ranks may
            have different numbers of them.
        dst: The destination, as a global rank.
        op: How to reduce.
        group: The group; None is the default group.
        async_op: Return at once with a `Work`, rather than when this rank is done.
        dst_tensor: Which of the destination's arrays; the same on all ranks.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        ValueError: The list is empty, its arrays differ, or it has no such array.
        CollectiveMismatchError: The ranks do not agree about destination, op, dtype or size.
        UnsupportedOperationError: The backend does not reduce this dtype with `op`.

    Examples:
        >>> arrays = [np.ones(2), np.ones(2)]
        >>> dist.reduce_multigpu(arrays, dst=0, dst_tensor=1)
        >>> arrays
        [array([1., 1.]), array([4., 4.])]
    """
    with shortened:
        pg = resolve(group, "reduce_multigpu")
        if pg is None:
            return None
        arrays = _local(pg, "reduce_multigpu", "tensor_list", tensor_list)
        root = group_rank(pg, "dst", dst, None)
        native = _native(_lane(pg, "reduce", arrays, op), arrays)
        if native is not None:
            index = _index(pg, "reduce_multigpu", "dst_tensor", dst_tensor, arrays)
            timeout_s, _ = terms(pg, arrays[0], "reduce", async_op, None)
            return finish(pg, native.reduce(arrays, op, root, index, timeout_s), tensor_list, async_op)
        index = _index(pg, "reduce_multigpu", "dst_tensor", dst_tensor, arrays) if root == pg.rank() else 0
        lane, total, inner = _reduced_here(pg, "reduce", arrays, op)

        def after() -> None:
            if root == pg.rank():
                _finish(op, total, arrays[index])

        work = lane.reduce(total, inner, root, *terms(pg, total, "reduce", async_op, None))
        return finish(pg, _then(work, after, *arrays), tensor_list, async_op)


def all_gather_multigpu(
    output_tensor_lists: Sequence[Sequence[AnyArray]],
    input_tensor_list: Sequence[AnyArray],
    group: GroupLike = None,
    async_op: bool = False,
) -> Work | None:
    """Copy all arrays of all ranks, by rank and then by position, into each `output_tensor_lists[i]` of every rank.

    Args:
        output_tensor_lists: The lists to fill, each with an array for every input of every rank.
        input_tensor_list: This rank's arrays, usually one on each device; as many, of one dtype and size, on all ranks.
        group: The group; None is the default group.
        async_op: Return at once with a `Work`, rather than when this rank is done.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        ValueError: The lists do not fit.
        CollectiveMismatchError: The ranks do not agree about dtype or size.

    Examples:
        >>> outputs = [[np.empty(1, int) for _ in range(2)]]
        >>> dist.all_gather_multigpu(outputs, [np.array([rank])])
        >>> outputs
        [[array([0]), array([1])]]
    """
    with shortened:
        pg = resolve(group, "all_gather_multigpu")
        if pg is None:
            return None
        op = "all_gather_multigpu"
        arrays = [_input(pg, op, f"input_tensor_list[{i}]", a) for i, a in enumerate(input_tensor_list)]
        outputs = [_local(pg, op, f"output_tensor_lists[{i}]", outs) for i, outs in enumerate(output_tensor_lists)]
        each = arrays[0].size if arrays else 0
        if not arrays or any(len(outs) != pg.size() * len(arrays) or outs[0].size != each for outs in outputs):
            raise ValueError(
                f"{op} on rank {pg.global_rank}: each output list must have {pg.size() * len(arrays)} arrays of {each} "
                "elements, one for each input of each rank"
            )
        native = _native(pg.lane(arrays[0], "all_gather"), arrays)
        if native is not None:
            _same_places(pg, op, "output_tensor_lists", outputs, "input_tensor_list", arrays)
            timeout_s, _ = terms(pg, arrays[0], "all_gather", async_op, None)
            return finish(pg, native.all_gather(outputs, arrays, timeout_s), output_tensor_lists, async_op)
        mine = stacked(arrays)
        with on(mine):
            whole = np.empty_like(mine, shape=(pg.size(), mine.size))
        lane = pg.lane(mine, "all_gather")

        def after() -> None:
            for outs in outputs:
                for out, row in zip(outs, whole.reshape(pg.size() * len(arrays), each), strict=True):
                    assign(out, row)

        work = lane.all_gather(list(whole), mine, *terms(pg, mine, "all_gather", async_op, None))
        return finish(pg, _then(work, after, *chain(*outputs)), output_tensor_lists, async_op)


def reduce_scatter_multigpu(
    output_tensor_list: Sequence[AnyArray],
    input_tensor_lists: Sequence[Sequence[AnyArray]],
    op: ReduceOp = ReduceOp.SUM,
    group: GroupLike = None,
    async_op: bool = False,
) -> Work | None:
    """Reduce the input lists of all ranks, and leave entry (rank, i) in that rank's `output_tensor_list[i]`.

    Args:
        output_tensor_list: The arrays to fill, usually one on each device; as many, of one dtype and size, on all
            ranks.
        input_tensor_lists: As many lists, each with an array for every output of every rank.
        op: How to reduce.
        group: The group; None is the default group.
        async_op: Return at once with a `Work`, rather than when this rank is done.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        ValueError: The lists do not fit.
        CollectiveMismatchError: The ranks do not agree about op, dtype or size.
        UnsupportedOperationError: The backend does not reduce this dtype with `op`.

    Examples:
        >>> outputs = [np.empty(1, int)]
        >>> dist.reduce_scatter_multigpu(outputs, [[np.array([10]), np.array([20])]])
        >>> outputs  # [40] on rank 1
        [array([20])]
    """
    with shortened:
        pg = resolve(group, "reduce_scatter_multigpu")
        if pg is None:
            return None
        name = "reduce_scatter_multigpu"
        outs = _local(pg, name, "output_tensor_list", output_tensor_list)
        lists = [_local(pg, name, f"input_tensor_lists[{i}]", ins) for i, ins in enumerate(input_tensor_lists)]
        entries = pg.size() * len(outs)
        if len(lists) != len(outs) or any(len(ins) != entries or ins[0].size != outs[0].size for ins in lists):
            raise ValueError(
                f"{name} on rank {pg.global_rank}: there must be {len(outs)} input lists, one for each output, "
                f"of {entries} arrays of {outs[0].size} elements"
            )
        native = _native(_lane(pg, "reduce_scatter", outs, op), outs)
        if native is not None:
            _same_places(pg, name, "input_tensor_lists", lists, "output_tensor_list", outs)
            timeout_s, _ = terms(pg, outs[0], "reduce_scatter", async_op, None)
            return finish(pg, native.reduce_scatter(outs, lists, op, timeout_s), output_tensor_list, async_op)
        lane, total, inner = _reduced_here(pg, "reduce_scatter", [stacked(ins) for ins in lists], op)
        with on(total):
            mine = np.empty_like(total, shape=(len(outs), outs[0].size))

        def after() -> None:
            for out, row in zip(outs, mine, strict=True):
                total_here = near(row, out)
                with on(out):
                    op.finish(total_here, out, pg.size() * len(outs))

        parts = list(total.reshape(pg.size(), mine.size))
        work = lane.reduce_scatter(mine, parts, inner, *terms(pg, total, "reduce_scatter", async_op, None))
        return finish(pg, _then(work, after, *outs), output_tensor_list, async_op)


def _native(lane: Communicator, arrays: list[Array]) -> DeviceCollectives | None:
    """Return the communicator's own collectives over the devices of these arrays, if it has any."""
    make: Callable[[list[int]], DeviceCollectives | None] | None = getattr(lane, "multigpu", None)
    return None if make is None else make([array.device.id for array in arrays])


def _lane(pg: ProcessGroup, op: str, arrays: list[Array], reduce_op: ReduceOp) -> Communicator:
    """Return the communicator for a reduction, refused by the dtype that the caller gave."""
    return pg.lane(arrays[0], op, check.reduce_op(pg, op, reduce_op, arrays[0]))


def _reduced_here(
    pg: ProcessGroup, op: str, arrays: list[Array], reduce_op: ReduceOp
) -> tuple[Communicator, Array, ReduceOp]:
    """Reduce this rank's own arrays; return the communicator, the sum so far, and the op for the rest of the way."""
    with on(arrays[0]):
        total = reduce_op.accumulator(arrays[0])
    for array in arrays[1:]:
        with on(array):
            part = reduce_op.accumulator(array)
        with on(total):
            reduce_op.combine(total, near(part, total))
    if reduce_op.name == "AVG" and op != "reduce_scatter":
        # Ranks may have different numbers of arrays; how many there are in all comes along as one more element.
        with on(total):
            total = np.concatenate([total, np.full_like(total, len(arrays), shape=1)])
    # Averages are divided at the very end, and factors are already in.
    inner = ReduceOp.SUM if reduce_op.name in ("AVG", "PREMUL_SUM") else reduce_op
    return pg.lane(total, op, inner), total, inner


def _finish(op: ReduceOp, total: Array, out: Array) -> None:
    """Write what `_reduced_here` has begun and the group has finished."""
    total = near(total, out)
    with on(out):
        if op.name == "AVG":
            op.finish(total[:-1], out, int(total[-1].real))
        else:
            op.finish(total, out, 1)


def _local(pg: ProcessGroup, op: str, name: str, values: Any) -> list[Array]:
    arrays = [check.output_array(pg, op, f"{name}[{i}]", value) for i, value in enumerate(values)]
    if not arrays:
        raise ValueError(f"{op} on rank {pg.global_rank}: {name} is empty")
    check.same_kind(pg, op, arrays[0], f"{name}[0]", arrays, name)
    for i, array in enumerate(arrays):
        check.same_size(pg, op, array, f"{name}[{i}]", arrays[0], f"{name}[0]")
    return arrays


def _same_places(
    pg: ProcessGroup, op: str, name: str, rows: list[list[Array]], like_name: str, like: list[Array]
) -> None:
    """Raise unless there is a row for each array, of its kind and on its device."""
    for i, row in enumerate([like, *rows]):
        row_name = f"{name}[{i - 1}]" if i else like_name
        check.same_kind(pg, op, like[0], f"{like_name}[0]", row, row_name)
        for j, array in enumerate(row):
            check.same_size(pg, op, array, f"{row_name}[{j}]", like[0], f"{like_name}[0]")
    places, wanted = [sorted({array.device.id for array in row}) for row in rows], [[a.device.id] for a in like]
    if places != wanted:
        raise ValueError(
            f"{op} on rank {pg.global_rank}: {name} must have one list for each array of {like_name}, on the same "
            f"device; the lists lie on devices {places}, but should on {wanted}"
        )


def _input(pg: ProcessGroup, op: str, name: str, value: Any) -> Array:
    """Return `value` as an array that is only read; if it has to be copied for that, where it lies."""
    try:
        where = on(as_array(value))
    except TypeError:  # said in more words below
        where = nullcontext()
    with where:
        return check.input_array(pg, op, name, value)


def _index(pg: ProcessGroup, op: str, name: str, index: int, arrays: list[Array]) -> int:
    if not 0 <= index < len(arrays):
        raise ValueError(f"{op} on rank {pg.global_rank}: {name}={index}, but the list has {len(arrays)} arrays")
    return index


def _then(work: Work, after: Callable[[], None], *filled: Array) -> Work:
    """Return a work that ends when `work` has and `after` has run, on the devices of what that fills too."""

    def finish() -> None:
        after()
        for array in filled:  # this thread's stream is not the caller's
            synchronize(array)

    return CombinedWork([work], after=finish)
