"""What other processes tell of themselves: checked whole, once, before anything else looks at it.

Whatever answers at a socket or writes into a store may be another version, broken, or ill-meaning. Behind `checked`
every figure is there, of its type, finite and of bounded size, and nothing is left that a terminal would obey.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from rankwise_watch.reading import WINDOW_FORMAT as FORMAT

Sample = Mapping[str, Any]

_MOST = 1 << 63
_Shape = Callable[[Any], bool]


def checked(told: bytes) -> Sample:
    """Return the sample that some bytes hold.

    Raises:
        ValueError: They hold none, or one of another version.
    """
    try:
        sample = json.loads(told)
    except RecursionError:
        sample = None
    if not _SAMPLE(sample):
        raise ValueError("it is no sample of this version of rankwise")
    cleaned: Sample = _printable(sample)
    return cleaned


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _whole(value: Any) -> bool:
    return type(value) is int and -_MOST <= value < _MOST


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _number(value: Any) -> bool:
    return _whole(value) or (type(value) is float and isfinite(value))


def _or_none(shape: _Shape) -> _Shape:
    return lambda value: value is None or shape(value)


def _list_of(shape: _Shape) -> _Shape:
    return lambda value: isinstance(value, list) and all(map(shape, value))


def _row(*shapes: _Shape) -> _Shape:
    return lambda value: (
        isinstance(value, list)
        and len(value) == len(shapes)
        and all(shape(each) for shape, each in zip(shapes, value, strict=True))
    )


def _some(value: Any) -> bool:
    return bool(value) and _list_of(_count)(value)


def _mapping_of(shape: _Shape) -> _Shape:
    return lambda value: isinstance(value, dict) and all(map(shape, value.values()))


def _record(**shapes: _Shape) -> _Shape:
    return lambda value: (
        isinstance(value, dict)
        and value.keys() == shapes.keys()
        and all(shape(value[name]) for name, shape in shapes.items())
    )


def _format(value: Any) -> bool:
    return type(value) is int and value == FORMAT


_STEP = _record(op=_text, number=_whole, peer=_or_none(_whole), message=_flag, at=_text, age_s=_number)
_GROUP = _record(
    description=_text,
    ranks=_some,
    backend=_text,
    failure=_text,
    way=_text,
    moved_nbytes=_mapping_of(_count),
    queued=_mapping_of(_count),
    shared_nbytes=_count,
    operations=_mapping_of(_row(_count, _count, _number, _or_none(_number), _count)),
    uncounted=_count,
    pending=_list_of(_STEP),
    last=_or_none(_STEP),
    begun=_row(_whole, _whole),
    arrivals=_list_of(_row(_text, _whole, _count, _count)),
    messages=_list_of(_row(_whole, _text, _text, _or_none(_count), _whole, _count, _count, _count)),
)
_SAMPLE = _record(
    rankwise_sample=_format,
    rank=_whole,
    ranks=_list_of(_count),
    outside=_text,
    job=_text,
    host=_text,
    pid=_count,
    program=_text,
    clock=_text,
    now_ns=_count,
    day_ns=_whole,
    memory_nbytes=_count,
    groups=_mapping_of(_GROUP),
)


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return "".join(c if c.isprintable() else " " for c in value)
    if isinstance(value, dict):
        return {_printable(key): _printable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_printable(each) for each in value]
    return value
