"""Calls by way of torch's dispatcher, for what it alone knows: tensors that stand for others, and modes that look on.

A group of C++ hands each call to an operator, such as `c10d::allreduce_`. There subclasses of tensors are unwrapped,
asynchronous ones waited for, `CommDebugMode` counts, fake tensors get fake results, and tracers note the operator. Then
its kernel for the CPU asks the group's backend. Ours has none in C++, and takes plain tensors without all this. Where
it matters, a call goes the way that those of C++ go; the kernel hands calls on our groups back to these, and all others
to the kernel that was there.
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d
from torch._C import DisableTorchFunction
from torch._C import _len_torch_dispatch_stack as _dispatch_modes
from torch._C import _len_torch_function_stack as _function_modes
from torch.distributed import ProcessGroup, Work
from torch.utils._pytree import tree_leaves

from rankwise_torch.tensors import WrappedError
from rankwise_torch.works import Pending, of_its_own

#: For each operator: the group's method, its arguments by their names in the operator's schema, and its options.
_OPERATORS: dict[str, tuple[str, str, Any]] = {
    "allreduce_": ("allreduce", "tensors", c10d.AllreduceOptions),
    "allreduce_coalesced_": ("allreduce_coalesced", "tensors", c10d.AllreduceCoalescedOptions),
    "reduce_": ("reduce", "tensors", c10d.ReduceOptions),
    "reduce_scatter_": ("reduce_scatter", "output_tensors input_tensors", c10d.ReduceScatterOptions),
    "_reduce_scatter_base_": ("reduce_scatter_single", "output_tensor input_tensor", c10d.ReduceScatterOptions),
    "reduce_scatter_tensor_coalesced_": (
        "reduce_scatter_single_coalesced",
        "outputs inputs",
        c10d.ReduceScatterOptions,
    ),
    "broadcast_": ("broadcast", "tensors", c10d.BroadcastOptions),
    "allgather_": ("allgather", "output_tensors input_tensors", c10d.AllgatherOptions),
    "_allgather_base_": ("all_gather_single", "output_tensor input_tensor", c10d.AllgatherOptions),
    "allgather_coalesced_": ("allgather_coalesced", "output_lists input_list", c10d.AllgatherOptions),
    "allgather_into_tensor_coalesced_": ("all_gather_single_coalesced", "outputs inputs", c10d.AllgatherOptions),
    "gather_": ("gather", "output_tensors input_tensors", c10d.GatherOptions),
    "scatter_": ("scatter", "output_tensors input_tensors", c10d.ScatterOptions),
    "alltoall_": ("alltoall", "output_tensors input_tensors", c10d.AllToAllOptions),
    "alltoall_base_": ("all_to_all_single", "output input output_split_sizes input_split_sizes", c10d.AllToAllOptions),
    "barrier": ("barrier", "", c10d.BarrierOptions),
    "send": ("send", "tensors dst tag", None),
    "recv_": ("recv", "tensors src tag", None),
    "recv_any_source_": ("recv_anysource", "tensors tag", None),
}
#: The methods that take part.
CALLS = tuple(method for method, _, _ in _OPERATORS.values())
#: Arguments of operators that are fields of options.
_FIELDS = {"reduce_op": "reduceOp", "root_rank": "rootRank", "async_op": "asyncOp", "timeout": "timeout"}

_registered = threading.Lock()
_library: torch.library.Library | None = None


class _Under(threading.local):
    """What a call of this thread that is under way in the dispatcher was given, and the work that its kernel made."""

    opts: Any = None
    work: Work | None = None
    depth = 0


_under = _Under()


def by_the_dispatcher(name: str, ours: Callable[..., Any]) -> Callable[..., Any]:
    """Return a group's method that goes by way of torch's dispatcher where that sees more than `ours`."""
    theirs = getattr(ProcessGroup, name)

    def call(self: ProcessGroup, *args: Any, **more: Any) -> Any:
        if not _dispatch_modes():
            try:
                if not _function_modes():
                    return ours(self, *args, **more)
                with DisableTorchFunction():
                    return ours(self, *args, **more)
            except WrappedError:
                if _under.depth:
                    raise  # torch has found nothing below it either
                _all_or_none_on_meta((*args, *more.values()))
        with _dispatching((*args, *more.values())):
            return theirs(self, *args, **more)

    # C++ calls back the method of a class in Python, unless it sees by the frame that this is what has called it.
    call.__code__ = call.__code__.replace(co_name=name)
    functools.update_wrapper(call, ours)
    return call


def _all_or_none_on_meta(given: tuple[Any, ...]) -> None:
    """Refuse a call of which torch would make nothing, because some of its tensors have no elements.

    Raises:
        TypeError: It has tensors on meta, and others.
    """
    found = {tensor.is_meta for tensor in tree_leaves(given) if isinstance(tensor, torch.Tensor)}
    if len(found) > 1:
        raise TypeError("tensors on meta, which have no elements, and others were given to one call")


@contextmanager
def _dispatching(given: tuple[Any, ...]) -> Iterator[None]:
    _register()
    before = _under.opts, _under.work
    _under.opts = next((value for value in given if hasattr(value, "reduceOp")), None)
    _under.depth += 1
    try:
        yield
    finally:
        _under.depth -= 1
        _under.opts, _under.work = before


def _register() -> None:
    """Put kernels before those of torch, when the first call needs them: those of other groups get slower by that."""
    global _library
    with _registered:
        if _library is not None:
            return
        _library = torch.library.Library("c10d", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel was there is what we count on
            for name in _OPERATORS:
                _library.impl(name, _kernel(name), "CPU", with_keyset=True, allow_override=True)


def _kernel(name: str) -> Callable[..., Any]:
    """Return the kernel of an operator that hands calls on our groups to their methods."""
    theirs = torch.library.get_kernel(f"c10d::{name}", "CPU")
    schema = getattr(torch.ops.c10d, name).default._schema
    method, places, kind = _OPERATORS[name]

    def kernel(keys: Any, *args: Any, **more: Any) -> Any:
        given = {arg.name: arg.default_value for arg in schema.arguments if arg.has_default_value()}
        given |= dict(zip((arg.name for arg in schema.arguments), args, strict=False)) | more
        group = ProcessGroup.unbox(given["process_group"])
        ours = getattr(getattr(type(group), method), "__wrapped__", None)
        if ours is None:
            return theirs.call_boxed(keys, *(given[arg.name] for arg in schema.arguments))
        values = [_bare(given[place]) for place in places.split()]
        work = ours(group, *values, *(() if kind is None else (_options(kind, given),)))
        boxed = _boxed(work)
        return boxed if len(schema.returns) == 1 else (given[places.split()[0]], boxed)

    return kernel


def _options(kind: Any, given: dict[str, Any]) -> Any:
    made = kind()
    for name, value in given.items():
        field = _FIELDS.get(name)
        if field == "timeout":
            made.timeout = timedelta(milliseconds=value)
        elif field == "reduceOp":  # boxed; only the options that the call was made with know a factor
            known = None if _under.opts is None else _under.opts.reduceOp
            made.reduceOp = c10d.ReduceOp(c10d.ReduceOp.RedOpType(value.op())) if known is None else known
        elif field is not None and hasattr(made, field):
            setattr(made, field, value)
    return made


def _boxed(work: Any) -> Any:
    """Return a work as operators do. C++ does not keep what Python has added to it: its caller, or a future, must."""
    if _under.depth:
        _under.work = work
    elif isinstance(work, Pending):
        work = of_its_own(work)
    return work.boxed()


def _bare(value: Any) -> Any:
    """Return what has come down to the kernel as plain tensors, as far as it can be had.

    These are tensors of subclasses that have memory of their own, and asynchronous ones: torch looks for subclasses in
    lists of tensors, and not in lists of lists.
    """
    if isinstance(value, list):
        return [_bare(part) for part in value]
    if _is_asynchronous(value):
        return value.trigger_wait()
    if isinstance(value, torch.Tensor) and _has_memory_in_a_subclass(value):
        plain = torch.empty(0, dtype=value.dtype, device="cpu")
        return plain.set_(value.untyped_storage(), value.storage_offset(), value.shape, value.stride())
    return value


def _is_asynchronous(value: Any) -> bool:
    # A program with such a tensor has loaded this module; one without is spared the 20 ms that it takes.
    functional = sys.modules.get("torch.distributed._functional_collectives")
    return functional is not None and isinstance(value, functional.AsyncCollectiveTensor)


def _has_memory_in_a_subclass(tensor: torch.Tensor) -> bool:
    if not torch._C._dispatch_keys(tensor).has(torch.DispatchKey.Python) or tensor.layout is not torch.strided:
        return False
    storage = tensor.untyped_storage()
    return bool(storage.device.type == "cpu" and storage.data_ptr() != 0)  # that of a fake tensor is on no device
