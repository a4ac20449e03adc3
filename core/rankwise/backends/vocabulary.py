"""The words of the tables, and how they may be spelt: names of backends, operations, features, devices, dtypes, ops.

A question that has no answer because a word is misspelt is a `ValueError` that names the nearest word, never a "no".
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from rankwise.basics import reduce_op as reduce_ops
from rankwise.basics.arguments import shown
from rankwise.basics.arrays import DTYPES, dtype_name
from rankwise.basics.devices import device_names, kind_of
from rankwise.basics.reduce_op import ReduceOp
from rankwise.collective.call import OPERATIONS

#: The name of no backend, as torch has it.
UNDEFINED = "undefined"

_TAKEN = {"tcp": "it has been retired", UNDEFINED: "it stands for no backend"}

POINT_TO_POINT = ("send", "recv")
#: These are of the table now, which a program may have added to.
COLLECTIVES = OPERATIONS.keys()
OPS: Mapping[str, Any] = ChainMap(OPERATIONS, dict.fromkeys(POINT_TO_POINT))
#: The core's own, whatever a program has added.
OWN_COLLECTIVES = frozenset(OPERATIONS)


def reducing() -> list[str]:
    """Return the collectives of the table that reduce."""
    return [op for op, row in OPERATIONS.items() if row.reduces]


FEATURES: Mapping[str, str] = MappingProxyType(
    {
        "async": "`async_op=True` makes progress while the caller computes",
        "tags": "messages between two ranks are told apart by tag",
        "any_source": "`recv(src=None)` takes from the first sender",
        "short_messages": "a message may be shorter than the buffer it is received into; a longer one is an error",
        "message_dtypes": "a message received into another dtype is an error that names both; uint8 takes any",
        "probe": "`probe` and `iprobe` tell of a message before it is received",
        "uneven": "parts may differ in size",
        "sparse": "`all_reduce` sums sparse arrays, such as scipy's",
        "timeout": "each call may have its own time-out, and ends at it",
        "abort": "a blocked call is ended from another thread",
        "mismatch": "ranks that disagree about a collective all get the same error",
        "split": "`split_group` makes groups; native: from the parent's connections",
        "shrink": "survivors of a dead rank can form a smaller group",
        "reconfigure": "`reconfigure` makes the default group one of any processes",
    }
)

#: Features that the core has for every backend, which may have ways of its own for them.
OF_THE_CORE = frozenset({"split"})


class Needs(NamedTuple):
    """What a public call needs of a backend's table.

    Attributes:
        names: Operations and features.
        dtype: Of what dtype the arrays are that it moves; "" if the caller's.
    """

    names: tuple[str, ...] = ()
    dtype: str = ""


def _objects(*ops: str) -> Needs:
    return Needs(ops, "uint8")


#: What each public call needs that is not called as its operation. Calls are refused by it, and questions answered.
CALLS: Mapping[str, Needs] = MappingProxyType(
    {
        **{f"all_gather_{form}": Needs(("all_gather",)) for form in ("single", "into_tensor", "coalesced", "multigpu")},
        **{f"reduce_scatter_{form}": Needs(("reduce_scatter",)) for form in ("single", "tensor", "multigpu")},
        **{f"all_reduce_{form}": Needs(("all_reduce",)) for form in ("coalesced", "multigpu")},
        **{f"{op}_multigpu": Needs((op,)) for op in ("broadcast", "reduce")},
        "all_to_all_single": Needs(("all_to_all",)),
        "monitored_barrier": Needs(("barrier",)),
        "coalescing": Needs(),
        "isend": Needs(("send",)),
        "irecv": Needs(("recv",)),
        "probe": Needs(("recv", "probe")),
        "iprobe": Needs(("recv", "probe")),
        "batch_isend_irecv": Needs(("send", "recv")),
        "all_gather_object": _objects("all_gather"),
        "gather_object": _objects("all_gather", "gather"),
        "broadcast_object_list": _objects("broadcast"),
        "scatter_object_list": _objects("scatter"),
        "send_object_list": _objects("send"),
        "recv_object_list": _objects("recv"),
        **dict.fromkeys(("init_process_group", "new_group", "new_subgroups", "new_subgroups_by_enumeration"), Needs()),
        **dict.fromkeys(("abort_process_group", "destroy_process_group"), Needs()),
        "split_group": Needs(("split",)),
        "shrink_group": Needs(("shrink",)),
        "reconfigure": Needs(("reconfigure",)),
        **dict.fromkeys(("get_reconfigure_handle", "supports_reconfigure"), Needs()),
    }
)

#: Kinds of devices that programs know by name, whether or not anything here brings or serves them.
DEVICES = (
    *("cpu", "cuda", "hip", "hpu", "ipu", "maia", "meta", "metal", "mps", "mtia", "npu", "oneapi"),
    *("opencl", "rocm", "tpu", "vulkan", "webgpu", "xla", "xpu"),
)

#: What backends have declared so far besides.
DECLARED_DEVICES: set[str] = set()

EVERY_DTYPE = frozenset(DTYPES)


class _Reductions(Mapping[str, frozenset[str]]):
    """The dtypes of each reduce op, as `rankwise.basics.reduce_op` has them now."""

    def __getitem__(self, name: str) -> frozenset[str]:
        return reduce_ops.REDUCE_OP_TABLE[name].dtypes

    def __iter__(self) -> Iterator[str]:
        return iter(reduce_ops.REDUCE_OP_TABLE)

    def __len__(self) -> int:
        return len(reduce_ops.REDUCE_OP_TABLE)


#: Where each reduce op is defined.
REDUCTIONS: Mapping[str, frozenset[str]] = _Reductions()


def nearest(word: str, known: Iterable[str], besides: Iterable[str] = ()) -> str:
    """Return the end of a sentence that names the nearest of the known words, or lists them all if none is near.

    The words in `besides` are too many to be listed.
    """
    import difflib  # which nobody needs who makes no mistake

    listed = list(dict.fromkeys(known))
    words = [*listed, *besides]
    alike = {each.lower(): each for each in words}
    near = difflib.get_close_matches(word.lower(), alike, n=1)
    return f"did you mean {alike[near[0]]!r}?" if near else f"there are {', '.join(listed)}"


def operation(op: Any) -> str:
    """Return an operation or feature if there is one of that name."""
    if isinstance(op, str) and (op in OPS or op in FEATURES):
        return op
    raise ValueError(f"no such operation or feature: {shown(op)}; {nearest(str(op), (*OPS, *FEATURES))}")


def needs_of(call: Any, reduce_op: str | None = None) -> Needs:
    """Return what a public call needs; an operation or feature needs itself.

    Raises:
        ValueError: There is no such call, operation or feature, or it takes no reduce op and one is given.
    """
    needs = CALLS.get(call) if isinstance(call, str) else None
    if needs is None:
        if not (isinstance(call, str) and (call in OPS or call in FEATURES)):
            near = nearest(str(call), (*OPS, *FEATURES), besides=CALLS)
            raise ValueError(f"no such operation or feature, and no such call: {shown(call)}; {near}")
        needs = Needs((call,))
    if reduce_op is not None and not any(name in reducing() for name in needs.names):
        raise ValueError(f"{call} has no reduce op; {', '.join(sorted(reducing()))} have")
    return needs


def reduce_op_name(reduce_op: Any) -> str | None:
    """Return the name of a reduce op given as `ReduceOp` or as a name."""
    if reduce_op is None:
        return None
    name = reduce_op.name if isinstance(reduce_op, ReduceOp) else str(reduce_op).upper()
    if name not in REDUCTIONS:
        raise ValueError(f"no such reduce op: {shown(reduce_op)}; {nearest(name, REDUCTIONS)}")
    return name


def dtype_word(dtype: Any) -> str | None:
    """Return the tables' name of a dtype given as that name, as anything NumPy takes for one, or as a library's own."""
    if dtype is None:
        return None
    library = type(dtype).__module__.partition(".")[0]
    if library not in ("builtins", "numpy") and str(dtype).startswith(f"{library}."):  # as torch.float32 is called
        dtype = str(dtype).removeprefix(f"{library}.")
    try:
        return _dtype_word(dtype)
    except TypeError:  # it cannot be hashed, or is no dtype
        if isinstance(dtype, list):  # as NumPy takes the fields of a structure
            with suppress(TypeError):
                return dtype_name(np.dtype(dtype))
        if isinstance(dtype, str):
            raise ValueError(f"no such dtype: {dtype!r}; {nearest(dtype, DTYPES)}") from None
        known = ", ".join(DTYPES)
        raise TypeError(f"{shown(dtype)} is no dtype; pass what NumPy takes for one, or one of {known}") from None


@lru_cache(maxsize=256)
def _dtype_word(dtype: Any) -> str:
    return dtype if isinstance(dtype, str) and dtype in EVERY_DTYPE else dtype_name(np.dtype(dtype))


def device_kind(device: Any, declared: Iterable[str] = ()) -> str:
    """Return the kind of a device given as "cuda", as "cuda:0", as a library's device, or as an array that lies there.

    `declared` are kinds that there are beside those that everybody knows, and those that backends have declared.

    Raises:
        ValueError: There is no such kind.
    """
    if not isinstance(device, str):
        return _kind_of_object(device)
    kind, colon, index = device.partition(":")
    is_spelt = not colon or index.isdecimal()
    if is_spelt and (kind in DEVICES or kind in declared or kind in DECLARED_DEVICES or kind in device_names()):
        return kind
    known = (*declared, *DECLARED_DEVICES, *device_names(), *DEVICES)
    raise ValueError(f"no such device: {shown(device)}; {nearest(kind, known)}")


def _kind_of_object(value: Any) -> str:
    if (found := kind_of(value)) is not None:
        return found.name  # an array, or a library's own device
    if isinstance(value, np.ndarray):
        return "cpu"
    if isinstance(kind := getattr(value, "type", None), str):
        return device_kind(kind, (kind,))  # a device as torch has them
    if callable(ask := getattr(value, "__dlpack_device__", None)):
        return "cpu" if int(ask()[0]) == 1 else "unknown"
    if hasattr(value, "__array_interface__"):
        return "cpu"
    raise TypeError(f"{shown(value)} is neither a device nor an array; pass a name such as 'cpu' or 'cuda:0'")


def not_a_name(name: object) -> str:
    """Return why something cannot be the name of a backend; nothing if it can."""
    if not isinstance(name, str):
        return f"a name is a string, not {name!r}"
    if name in _TAKEN:
        return f"{name!r} is reserved: {_TAKEN[name]}"
    if _is_plain(name):
        return ""
    import re  # which costs a good name more than all the rest

    normal = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")
    could = f", such as {normal!r}" if _is_plain(normal) and normal not in _TAKEN else ""
    return f"a name has lower-case letters, digits and underscores only{could}"


def _is_plain(name: str) -> bool:
    return name.isascii() and name.isidentifier() and name == name.lower()
