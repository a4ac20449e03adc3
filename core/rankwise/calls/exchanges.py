"""The collectives in which every rank gets something from every other, in lists of arrays or in equal parts of one.

What `rankwise.calls.collectives` says of arguments and errors holds here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankwise.basics.arrays import AnyArray
from rankwise.basics.deadline import Timeout
from rankwise.basics.reduce_op import ReduceOp
from rankwise.basics.work import Work
from rankwise.calls import check
from rankwise.calls.calling import carry_out, failed, issued, require_uneven
from rankwise.calls.check import aside, parts_aside
from rankwise.calls.fronts import fronted
from rankwise.collective.call import Call
from rankwise.groups.process_group import GroupLike, ProcessGroup
from rankwise.groups.world import resolve


@fronted("tensor_list", "tensor", "timeout")
def all_gather(
    tensor_list: Sequence[AnyArray],
    tensor: AnyArray,
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Copy rank i's array into `tensor_list[i]` of every rank.

    The ranks' arrays may differ in size, on backends with the feature `uneven`: then `tensor_list[i]` has the size of
    rank i's array.

    Args:
        tensor_list: The arrays to fill, one for each rank of the group, which must not share memory.
        tensor: What this rank contributes.
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: An argument is not an array, or not a list of arrays.
        ValueError: The list has the wrong length, or an array the wrong size or dtype, or it cannot be written to.
        CollectiveMismatchError: The ranks do not agree about dtype or sizes.
        DistTimeoutError: Some ranks did not call in time.
        UnsupportedOperationError: The sizes differ, and the backend takes only equal ones.

    Examples:
        >>> mine = np.arange(1 + rank)  # of 1 element on rank 0, of 2 on rank 1
        >>> arrays = [np.empty(1, int), np.empty(2, int)]
        >>> dist.all_gather(arrays, mine)
        >>> arrays
        [array([0]), array([0, 1])]
    """
    pg = None
    try:
        if (pg := resolve(group, "all_gather")) is None:
            return None
        if async_op:
            if (work := issued(pg, "all_gather", tensor_list, timeout, tensor_list, tensor)) is not None:
                return work
        elif pg.shortcuts.all_gather(tensor_list, tensor, timeout):
            return None
        array = check.input_array(pg, "all_gather", "tensor", tensor)
        parts = check.array_list(pg, "all_gather", "tensor_list", tensor_list, writable=True)
        check.same_kind(pg, "all_gather", array, "tensor", parts, "tensor_list")
        check.same_size(pg, "all_gather", array, "tensor", parts[pg.rank()], "this rank's own entry of tensor_list")
        check.apart(pg, "all_gather", "tensor_list", parts)
        array = aside(array, parts, parts[pg.rank()])
        require_uneven(pg, "all_gather", parts)
        return carry_out(pg, Call("all_gather", array, outs=parts), tensor_list, async_op, timeout, filled=parts)
    except BaseException as error:
        failed(pg, error)
        raise


@fronted("output_tensor", "input_tensor", "timeout")
def all_gather_single(
    output_tensor: AnyArray,
    input_tensor: AnyArray,
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Copy rank i's array into the i-th of equal parts of every rank's output, concatenated or stacked.

    All parts are of equal size; see `all_gather` for arrays that differ in size.

    Args:
        output_tensor: The array to fill, with as many elements as all inputs together.
        input_tensor: What this rank contributes; of the same dtype and size on all ranks.
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: An argument is not an array.
        ValueError: The sizes or dtypes do not fit, or the output cannot be written to.
        CollectiveMismatchError: The ranks do not agree about dtype or size.
        DistTimeoutError: Some ranks did not call in time.

    Examples:
        >>> whole = np.empty((2, 3), int)
        >>> dist.all_gather_single(whole, np.full(3, rank))
        >>> whole
        array([[0, 0, 0],
               [1, 1, 1]])
    """
    pg = None
    try:
        if (pg := resolve(group, "all_gather_single")) is None:
            return None
        if async_op:
            work = issued(pg, "all_gather_single", output_tensor, timeout, output_tensor, input_tensor)
            if work is not None:
                return work
        elif pg.shortcuts.all_gather_single(output_tensor, input_tensor, timeout):
            return None
        array = check.input_array(pg, "all_gather_single", "input_tensor", input_tensor)
        output = check.output_array(pg, "all_gather_single", "output_tensor", output_tensor)
        check.same_kind(pg, "all_gather_single", array, "input_tensor", [output], "output_tensor")
        parts = check.equal_parts(pg, "all_gather_single", "output_tensor", output, array, "input_tensor")
        array = aside(array, (output,), parts[pg.rank()])
        return carry_out(pg, Call("all_gather", array, outs=parts), output_tensor, async_op, timeout, filled=output)
    except BaseException as error:
        failed(pg, error)
        raise


@fronted("output", "input_list", "op", "timeout")
def reduce_scatter(
    output: AnyArray,
    input_list: Sequence[AnyArray],
    op: ReduceOp = ReduceOp.SUM,
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Reduce `input_list[i]` of all ranks into rank i's output.

    The parts may differ in size, on backends with the feature `uneven`; part i has the same size on all ranks.

    Args:
        output: The array to fill.
        input_list: What this rank contributes, one array for each rank of the group.
        op: How to reduce.
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: An argument is not an array or list of arrays, or `op` is not a `ReduceOp`.
        ValueError: The list has the wrong length, or an array the wrong size or dtype, or the output cannot be written
            to.
        CollectiveMismatchError: The ranks do not agree about op, dtype or sizes.
        DistTimeoutError: Some ranks did not call in time.
        UnsupportedOperationError: The backend does not reduce this dtype with `op`, or takes only equal sizes.

    Examples:
        >>> array = np.empty(1, int)
        >>> dist.reduce_scatter(array, [np.array([10 + rank]), np.array([20 + rank])])
        >>> array  # [41] on rank 1
        array([21])
    """
    pg = None
    try:
        if (pg := resolve(group, "reduce_scatter")) is None:
            return None
        if async_op:
            if (work := issued(pg, "reduce_scatter", output, timeout, output, input_list, op)) is not None:
                return work
        elif pg.shortcuts.reduce_scatter(output, input_list, op, timeout):
            return None
        array = check.output_array(pg, "reduce_scatter", "output", output)
        parts = check.array_list(pg, "reduce_scatter", "input_list", input_list, writable=False)
        check.same_kind(pg, "reduce_scatter", array, "output", parts, "input_list")
        check.same_size(pg, "reduce_scatter", array, "output", parts[pg.rank()], "this rank's own entry of input_list")
        parts = parts_aside(parts, array)
        require_uneven(pg, "reduce_scatter", parts)
        call = Call("reduce_scatter", array, check.reduce_op(pg, "reduce_scatter", op, array), ins=parts)
        return carry_out(pg, call, output, async_op, timeout, filled=array)
    except BaseException as error:
        failed(pg, error)
        raise


@fronted("output", "input", "op", "timeout")
def reduce_scatter_single(
    output: AnyArray,
    input: AnyArray,
    op: ReduceOp = ReduceOp.SUM,
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Reduce the i-th of equal parts of all ranks' inputs into rank i's output.

    All parts are of equal size; see `reduce_scatter` for parts that differ in size.

    Args:
        output: The array to fill; of the same dtype and size on all ranks.
        input: What this rank contributes, with as many elements as all outputs together.
        op: How to reduce.
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: An argument is not an array, or `op` is not a `ReduceOp`.
        ValueError: The sizes or dtypes do not fit, or the output cannot be written to.
        CollectiveMismatchError: The ranks do not agree about op, dtype or size.
        DistTimeoutError: Some ranks did not call in time.
        UnsupportedOperationError: The backend does not reduce this dtype with `op`.

    Examples:
        >>> array = np.empty(2, int)
        >>> dist.reduce_scatter_single(array, np.arange(4))
        >>> array  # [4, 6] on rank 1
        array([0, 2])
    """
    pg = None
    try:
        if (pg := resolve(group, "reduce_scatter_single")) is None:
            return None
        if async_op:
            if (work := issued(pg, "reduce_scatter_single", output, timeout, output, input, op)) is not None:
                return work
        elif pg.shortcuts.reduce_scatter_single(output, input, op, timeout):
            return None
        array = check.output_array(pg, "reduce_scatter_single", "output", output)
        whole = check.input_array(pg, "reduce_scatter_single", "input", input)
        check.same_kind(pg, "reduce_scatter_single", array, "output", [whole], "input")
        parts = check.equal_parts(pg, "reduce_scatter_single", "input", whole, array, "output")
        parts = parts_aside(parts, array)
        call = Call("reduce_scatter", array, check.reduce_op(pg, "reduce_scatter_single", op, array), ins=parts)
        return carry_out(pg, call, output, async_op, timeout, filled=array)
    except BaseException as error:
        failed(pg, error)
        raise


@fronted("output_tensor_list", "input_tensor_list", "timeout")
def all_to_all(
    output_tensor_list: Sequence[AnyArray],
    input_tensor_list: Sequence[AnyArray],
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Copy rank i's `input_tensor_list[j]` into rank j's `output_tensor_list[i]`.

    All the arrays may differ in size, on backends with the feature `uneven`: each only has to fit where it arrives.

    Args:
        output_tensor_list: The arrays to fill, one for each rank of the group.
        input_tensor_list: What each rank of the group gets from this one.
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: An argument is not an array, or not a list of arrays.
        ValueError: A list has the wrong length, the dtypes differ, or an output cannot be written to or shares memory
            with another array.
        CollectiveMismatchError: The ranks do not agree about dtype or sizes.
        DistTimeoutError: Some ranks did not call in time.
        UnsupportedOperationError: The sizes differ, and the backend takes only equal ones.

    Examples:
        >>> outputs = [np.empty(1, int), np.empty(1, int)]
        >>> dist.all_to_all(outputs, [np.array([10 * rank]), np.array([10 * rank + 1])])
        >>> outputs  # [1] and [11] on rank 1
        [array([0]), array([10])]
    """
    pg = None
    try:
        if (pg := resolve(group, "all_to_all")) is None:
            return None
        if async_op:
            work = issued(pg, "all_to_all", output_tensor_list, timeout, output_tensor_list, input_tensor_list)
            if work is not None:
                return work
        elif pg.shortcuts.all_to_all(output_tensor_list, input_tensor_list, timeout):
            return None
        outs = check.array_list(pg, "all_to_all", "output_tensor_list", output_tensor_list, writable=True)
        ins = check.array_list(pg, "all_to_all", "input_tensor_list", input_tensor_list, writable=False)
        check.same_kind(pg, "all_to_all", ins[0], "the first input", [*ins, *outs], "the arrays")
        check.apart(pg, "all_to_all", "output_tensor_list", outs, ins)
        call = _exchange(pg, "all_to_all", outs, ins)
        return carry_out(pg, call, output_tensor_list, async_op, timeout, filled=outs, own=ins[0])
    except BaseException as error:
        failed(pg, error)
        raise


@fronted("output", "input", "timeout")
def all_to_all_single(
    output: AnyArray,
    input: AnyArray,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Split the input along its first dimension, send part j to rank j, and concatenate the received parts.

    The parts are equal, unless split sizes are given; different sizes need a backend with the feature `uneven`.

    Args:
        output: The array to fill.
        input: What this rank sends.
        output_split_sizes: How many rows each rank sends; None for the same number from each.
        input_split_sizes: How many rows each rank gets; None for the same number for each.
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: An argument is not an array.
        ValueError: The sizes do not add up to the rows of an array, the dtypes differ, or the output cannot be written
            to or shares memory with the input.
        CollectiveMismatchError: The ranks do not agree about dtype or sizes.
        DistTimeoutError: Some ranks did not call in time.
        UnsupportedOperationError: The sizes differ, and the backend takes only equal ones.

    Examples:
        >>> output = np.empty(2, int)
        >>> dist.all_to_all_single(output, np.array([10 * rank, 10 * rank + 1]))
        >>> output  # [1, 11] on rank 1
        array([ 0, 10])
    """
    pg = None
    try:
        if (pg := resolve(group, "all_to_all_single")) is None:
            return None
        equal = not output_split_sizes and not input_split_sizes
        if async_op and equal:
            if (work := issued(pg, "all_to_all_single", output, timeout, output, input)) is not None:
                return work
        elif equal and pg.shortcuts.all_to_all_single(output, input, timeout):
            return None
        whole = check.output_array(pg, "all_to_all_single", "output", output)
        array = check.input_array(pg, "all_to_all_single", "input", input)
        outs = check.split_parts(pg, "all_to_all_single", "output", whole, output_split_sizes)
        ins = check.split_parts(pg, "all_to_all_single", "input", array, input_split_sizes)
        check.same_kind(pg, "all_to_all_single", array, "input", [whole], "output")
        check.apart(pg, "all_to_all_single", "output", [whole], [array])
        call = _exchange(pg, "all_to_all_single", outs, ins)
        return carry_out(pg, call, output, async_op, timeout, filled=whole, own=ins[0])
    except BaseException as error:
        failed(pg, error)
        raise


all_gather_into_tensor = all_gather_single
"""`all_gather_single` by the name that torch used before 2.13."""
reduce_scatter_tensor = reduce_scatter_single
"""`reduce_scatter_single` by the name that torch used before 2.13."""


def _exchange(pg: ProcessGroup, op: str, outs: list[Any], ins: list[Any]) -> Call:
    mine = pg.rank()
    check.same_size(pg, op, outs[mine], "this rank's own output part", ins[mine], "its own input part")
    require_uneven(pg, op, outs, ins)
    return Call("all_to_all", ins[mine], ins=ins, outs=outs)
