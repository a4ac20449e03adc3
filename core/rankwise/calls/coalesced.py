"""Several collectives issued together, and several small arrays that are reduced as one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from threading import get_ident
from types import TracebackType
from typing import Any

import numpy as np

from rankwise.basics.arguments import require
from rankwise.basics.arrays import AnyArray, Array, is_sparse
from rankwise.basics.interrupts import is_interrupt
from rankwise.basics.reduce_op import ReduceOp
from rankwise.basics.tracebacks import shortened
from rankwise.basics.work import Work
from rankwise.calls import check
from rankwise.calls.calling import CombinedWork, Composed, carry_out, failed
from rankwise.calls.collectives import all_reduce
from rankwise.calls.exchanges import all_gather
from rankwise.calls.fronts import fronted
from rankwise.collective.call import Call
from rankwise.errors import DistError
from rankwise.groups.process_group import GroupLike, ProcessGroup
from rankwise.groups.world import resolve

_MASK = (1 << 64) - 1


class Coalesced:
    """The works of one `coalescing` block, which a `with` statement opens and closes.

    It is no generator: an interrupt between that and what calls it would leave the block open.

    Args:
        group: The group; None on a rank that is not in it.
        async_ops: Whether nobody waits at the end of the block.

    Attributes:
        works: The works, in the order of the calls.
    """

    def __init__(self, group: ProcessGroup | None, async_ops: bool = False) -> None:
        self.works: list[Work] = []
        self._group, self._async_ops = group, async_ops
        self._together = ExitStack()

    def __enter__(self) -> Coalesced:
        pg = None
        try:
            pg = self._group
            if pg is None:
                return self
            if get_ident() in pg.collected:
                raise RuntimeError(f"coalescing: this thread already has an open block on group {pg.group_desc!r}")
            pg.collected[get_ident()] = self.works
            for communicator in pg.communicators():
                self._together.enter_context(communicator.batch())
            return self
        except BaseException as error:
            if pg is not None and pg.collected.get(get_ident()) is self.works:
                del pg.collected[get_ident()]
            failed(pg, error)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pg = None
        try:
            pg = self._group
            if pg is None:
                return
            pg.collected.pop(get_ident(), None)
            failure = error
            try:
                self._together.__exit__(kind, error, trace)
            except BaseException as another:
                failure = another
                raise
            finally:
                if failure is not None:
                    # The arrays are still being written to; nobody else would wait for that.
                    with suppress(DistError):
                        self.wait()
                elif not self._async_ops:
                    self.wait()
        except BaseException as new:
            failed(pg, new)
            raise

    def wait(self) -> None:
        """Wait for all of them, then raise the first error."""
        with shortened:
            errors = []
            for work in self.works:
                try:
                    work.wait()
                except Exception as error:  # whatever it is, the others still have to end
                    if is_interrupt(error):
                        raise
                    errors.append(error)
            if errors:
                raise errors[0]


def coalescing(group: GroupLike = None, device: Any = None, async_ops: bool = False) -> Coalesced:
    """Issue the collectives of a block together, and wait for all of them at its end.

    Args:
        group: The group that they are called on; None is the default group.
        device: Accepted as in torch, and ignored: each array is on a device.
        async_ops: Do not wait at the end of the block; call `wait()` of what it yields.

    Returns:
        What a `with` statement takes; it yields a `Coalesced` with the block's works.

    Raises:
        RuntimeError: This thread has a block open on the group already.
        UnsupportedOperationError: `async_ops` is given, and a backend of the group makes no progress meanwhile.

    Examples:
        >>> a, b = np.ones(2), np.ones(3)
        >>> with dist.coalescing():
        ...     dist.all_reduce(a)
        ...     dist.all_reduce(b)
        >>> a, b
        (array([2., 2.]), array([2., 2., 2.]))
    """
    with shortened:
        pg = resolve(group, "coalescing")
        if pg is not None and async_ops:
            _require_async(pg, "coalescing")
        return Coalesced(pg, async_ops)


def _require_async(group: ProcessGroup, op: str) -> None:
    for device in group.config.device_backend_map:
        group.require_feature("async", device, op)


@fronted("tensors", "op", None)
def all_reduce_coalesced(
    tensors: Sequence[AnyArray], op: ReduceOp = ReduceOp.SUM, group: GroupLike = None, async_op: bool = False
) -> Work | None:
    """Do an `all_reduce` of each array, issued together; small ones of one dtype are reduced as one array.

    Args:
        tensors: The arrays, which may differ in shape and dtype; the same on all ranks. None may share memory with
            another.
        op: How to reduce.
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        CollectiveMismatchError: The ranks do not agree about the arrays.

    Examples:
        >>> arrays = [np.ones(2), np.arange(2)]
        >>> dist.all_reduce_coalesced(arrays)
        >>> arrays
        [array([2., 2.]), array([0, 2])]
    """
    pg = None
    try:
        if (pg := resolve(group, "all_reduce_coalesced")) is None:
            return None
        if not async_op and pg.shortcuts.all_reduce_coalesced(tensors, op, None):
            return None
        require(tensors=tensors)
        if async_op:
            _require_async(pg, "all_reduce_coalesced")
        check.any_reduce_op(pg, "all_reduce_coalesced", op)
        given = list(tensors)
        arrays = None if get_ident() in pg.collected else _small_ones(pg, given)
        if arrays is not None:
            flat, together = packed(arrays), (-len(arrays), shapes_mark(arrays))
            call = Call("all_reduce", flat, check.reduce_op(pg, "all_reduce", op, flat), together=together)
            return carry_out(pg, call, given, async_op, None, filled=arrays, after=lambda: unpack(flat, arrays))
        with Coalesced(pg, async_ops=True) as block:
            for tensor in given:
                all_reduce(tensor, op, group)
        return _ended(block, given, async_op)
    except BaseException as error:
        failed(pg, error)
        raise


def all_gather_coalesced(
    output_tensor_lists: Sequence[Sequence[AnyArray]],
    input_tensor_list: Sequence[AnyArray],
    group: GroupLike = None,
    async_op: bool = False,
) -> Work | None:
    """Do an `all_gather` of each array of `input_tensor_list`, issued together.

    `output_tensor_lists[i]` gets the arrays that the ranks gave as their `input_tensor_list[i]`. They may be uneven as
    those of `all_gather`.

    Args:
        output_tensor_lists: For each input a list of arrays to fill, one for each rank.
        input_tensor_list: What this rank contributes.
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        ValueError: The numbers of output lists and inputs differ, or sizes do not fit.
        CollectiveMismatchError: The ranks do not agree about the arrays.

    Examples:
        >>> outputs = [[np.empty(1, int), np.empty(1, int)]]
        >>> dist.all_gather_coalesced(outputs, [np.array([rank])])
        >>> outputs
        [[array([0]), array([1])]]
    """
    with Composed() as call:
        if (pg := resolve(group, "all_gather_coalesced")) is None:
            return None
        call.begun_on = pg
        require(output_tensor_lists=output_tensor_lists, input_tensor_list=input_tensor_list)
        if async_op:
            _require_async(pg, "all_gather_coalesced")
        if len(output_tensor_lists) != len(input_tensor_list):
            lists, inputs = len(output_tensor_lists), len(input_tensor_list)
            raise ValueError(f"output_tensor_lists holds {lists} lists, but input_tensor_list {inputs} arrays")
        with Coalesced(pg, async_ops=True) as block:
            for outputs, tensor in zip(output_tensor_lists, input_tensor_list, strict=True):
                all_gather(outputs, tensor, group)
        return _ended(block, list(output_tensor_lists), async_op)


#: Up to how many arrays, and how many bytes of all, are reduced as one. With more to move, what they have in common is
#: little of the time, and to copy them is not.
_MOST_ARRAYS, _MOST_NBYTES = 256, 64 << 10


def _small_ones(group: ProcessGroup, given: Sequence[Any]) -> list[Array] | None:
    """Return arrays that are reduced as one, by what all ranks know alike of them: their dtypes and shapes."""
    if not 1 < len(given) <= _MOST_ARRAYS or any(type(each) is not np.ndarray and is_sparse(each) for each in given):
        return None
    arrays = [check.reducible_array(group, "all_reduce", "tensor", each) for each in given]
    first = arrays[0].dtype
    alike = all(type(array) is np.ndarray and array.dtype == first for array in arrays)
    return arrays if alike and 0 < sum(array.nbytes for array in arrays) <= _MOST_NBYTES else None


def _ended(block: Coalesced, result: list[Any], async_op: bool) -> Work | None:
    if not async_op:
        block.wait()
        return None
    return CombinedWork(block.works, result)


# Several arrays as one: packed into it, and taken out of it again


def packed(arrays: Sequence[Array]) -> Array:
    """Return all elements of C-contiguous arrays of one dtype, one array behind the other."""
    flat = np.empty(sum(array.size for array in arrays), arrays[0].dtype)
    np.concatenate([array.reshape(-1) for array in arrays], out=flat)
    return flat


def unpack(flat: Array, arrays: Sequence[Array]) -> None:
    """Put elements back to where they come from."""
    begin = 0
    for array in arrays:
        array.reshape(-1)[...] = flat[begin : begin + array.size]
        begin += array.size


def shapes_mark(arrays: Sequence[Array]) -> int:
    """Return a number below zero that stands for the shapes of arrays: Fowler, Noll and Vo's hash, by words.

    Compiled parts make the same of them.
    """
    mark = 0xCBF29CE484222325
    for array in arrays:
        for number in (array.ndim, *array.shape):
            mark = ((mark ^ number) * 0x100000001B3) & _MASK
            mark ^= mark >> 29  # else the upper bits would never reach the lower ones
    return -1 - (mark >> 1)
