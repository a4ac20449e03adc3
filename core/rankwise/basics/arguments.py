"""What the arguments of public calls may be, by their names; this is looked up when a call has raised, and only then.

Whatever a wrong argument makes Python say deep inside becomes one sentence that names the call, the rank, the argument
and what to give. Calls check beforehand what would be noticed too late, or on some ranks alone.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Iterable
from datetime import timedelta
from types import FrameType
from typing import Any, NamedTuple

import numpy as np


def is_integer(value: Any) -> bool:
    """Tell whether a value is an integer, of whatever library, and no bool."""
    return hasattr(value, "__index__") and not isinstance(value, (bool, type)) and not getattr(value, "shape", ())


def whole_number(value: Any, name: str, least: int = 0) -> int:
    """Return an argument, called `name`, that is a whole number.

    Raises:
        TypeError: It is none.
        ValueError: It is less than `least`.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} must be a whole number, not {shown(value)}")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, not {number}")
    return number


class _Kind(NamedTuple):
    #: Nothing that it raises is caught: that may be an interrupt.
    fits: Callable[[Any], bool]
    words: str

    def or_none(self) -> _Kind:
        return _Kind(lambda value: value is None or self.fits(value), f"{self.words} or None")


def _is_series(value: Any) -> bool:
    """Tell whether a value can be gone through and is no array, text or mapping."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, dict)) and not hasattr(value, "dtype")


def _all(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: _is_series(value) and all(fits(part) for part in value)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, dict)) and all(map(is_integer, value))


def _is_array(value: Any) -> bool:
    return not isinstance(value, (int, float, complex, str, list, tuple, set, dict, np.generic, type(None)))


_FLAG = _Kind(lambda value: isinstance(value, (bool, int, np.bool_)), "True or False")
_INTEGER = _Kind(is_integer, "an integer")
_RANK = _Kind(is_integer, "an integer rank").or_none()
_GROUP = _Kind(lambda value: hasattr(value, "group_desc") or type(value) is int, "a process group").or_none()
_TIMEOUT = _Kind(
    lambda value: isinstance(value, (int, float, timedelta)) and not isinstance(value, bool),
    "a number of seconds, a datetime.timedelta",
).or_none()
_TEXT = _Kind(lambda value: isinstance(value, str), "a string").or_none()
_NAMES = _Kind(_all(lambda value: isinstance(value, str)), "a list of strings")
_ARRAYS = _Kind(_all(_is_array), "a list of arrays")
_LISTS = _Kind(_all(_all(_is_array)), "a list of lists of arrays")
_OBJECTS = _Kind(lambda value: isinstance(value, list), "a list")
_RANKS = _Kind(_is_numbers, "a list of integer ranks")
_LISTS_OF_RANKS = _Kind(_all(_is_numbers), "a list of lists of integer ranks")

_KINDS: dict[str, _Kind] = {
    **dict.fromkeys(("async_op", "async_ops", "pickle", "use_batch", "wait_all_ranks"), _FLAG),
    **dict.fromkeys(("use_local_synchronization", "sort_ranks"), _FLAG),
    **dict.fromkeys(("group", "parent_pg"), _GROUP),
    **dict.fromkeys(("src", "dst", "group_src", "group_dst", "peer", "fallback_rank"), _RANK),
    **dict.fromkeys(("group_rank", "global_rank"), _Kind(is_integer, "an integer rank")),
    **dict.fromkeys(("src_tensor", "dst_tensor", "tag", "shrink_flags", "world_size", "rank", "amount"), _INTEGER),
    "group_size": _INTEGER.or_none(),
    "timeout": _TIMEOUT,
    **dict.fromkeys(("tensor_list", "tensors", "input_list", "input_tensor_list", "output_tensor_list"), _ARRAYS),
    **dict.fromkeys(("gather_list", "scatter_list"), _ARRAYS.or_none()),
    **dict.fromkeys(("output_tensor_lists", "input_tensor_lists"), _LISTS),
    **dict.fromkeys(("object_list", "scatter_object_output_list"), _OBJECTS),
    **dict.fromkeys(("object_gather_list", "scatter_object_input_list"), _OBJECTS.or_none()),
    **dict.fromkeys(("output_split_sizes", "input_split_sizes"), _Kind(_is_numbers, "a list of integers").or_none()),
    **dict.fromkeys(("ranks_per_subgroup_list", "split_ranks"), _LISTS_OF_RANKS),
    "ranks": _RANKS.or_none(),
    "ranks_to_exclude": _RANKS,
    **dict.fromkeys(("group_desc", "backend", "group_name", "init_method"), _TEXT),
    "features": _NAMES,
    "handles": _NAMES,
    "uuid": _Kind(lambda value: isinstance(value, str), "a string"),
    "p2p_op_list": _Kind(_all(lambda value: type(value).__name__ == "P2POp"), "a list of P2POp"),
}


def require(**given: Any) -> None:
    """Raise a `TypeError` if an argument is of another kind than its name stands for.

    It names the argument; the call at whose end `name_argument` looks at the error is named there.
    """
    for name, value in given.items():
        if not _KINDS[name].fits(value):
            raise TypeError(_wanted(name, value))


#: How a message begins that names its call.
_NAMED = re.compile(r"(\w+)(\.\w+)?( on rank \d+)?: ")


def name_argument(error: BaseException, frame: FrameType) -> None:
    """Have the error of a public call, by its frame, say which argument is wrong, or at least which call it is about.

    Only a `TypeError` or `ValueError` of Python's own is changed.
    """
    if type(error) not in (TypeError, ValueError) or frame.f_code.co_name.startswith("_"):
        return
    call, said = _name(frame), str(error)
    if said.startswith(call):
        return
    named = _NAMED.match(said)
    if named and named[1] in sys.modules["rankwise"].__all__:  # a call that this one has made
        said = said[named.end() :]
    elif named:
        return
    error.args = (f"{call}{_place(frame)}: {_wrong(frame) or said}",)


def _name(frame: FrameType) -> str:
    own = frame.f_locals.get("self")
    return frame.f_code.co_name if own is None else f"{type(own).__name__}.{frame.f_code.co_name}"


def _place(frame: FrameType) -> str:
    """Return on which rank the call was made, as far as it has come to know."""
    group = frame.f_locals.get("pg") or frame.f_locals.get("members")
    rank = getattr(group, "global_rank", None)
    return "" if rank is None else f" on rank {rank}"


def _wrong(frame: FrameType) -> str:
    """Return a sentence about the first argument that is of another kind than its name stands for; "" if none is."""
    code = frame.f_code
    for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        value = frame.f_locals.get(name)
        if name in _KINDS and not _KINDS[name].fits(value):
            return _wanted(name, value)
    return ""


def _wanted(name: str, value: Any) -> str:
    return f"{name} must be {_KINDS[name].words}, not {shown(value)}"


def shown(value: Any) -> str:
    """Return what a value is in a message: short, and without what an array happens to hold."""
    shape = getattr(value, "shape", None)
    if shape is not None and not isinstance(value, np.generic):
        return f"an array of shape {tuple(shape)}"
    return f"{value!r:.100}"


def with_article(noun: str) -> str:
    """Return a noun with "a" or "an" before it."""
    return f"{'an' if noun[:1].lower() in tuple('aeiou') else 'a'} {noun}"
