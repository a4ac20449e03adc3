"""The dataclasses that may arrive: those that this process registered, or has itself encoded before.

Bytes only ever name a class; they cannot cause an import, nor reach a class that merely happens to be loaded. An
instance is made by setting its fields, without `__init__` and `__post_init__`: those have run where the object was
made, and would run twice on values that they had already changed.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import TypeVar

from rankwise.codec.layout import DecodeError, Tag, layout_of

_AnyClass = TypeVar("_AnyClass", bound=type)
_HEAD = layout_of("BQ")


class Registered:
    """A dataclass that travels: its fields, and the bytes that an encoded instance begins with."""

    __slots__ = ("cls", "header", "names", "signature", "title")

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.title = _title(cls)
        self.names = tuple(field.name for field in dataclasses.fields(cls))
        self.signature = f"{self.title}({','.join(self.names)})"
        text = self.signature.encode()
        self.header = _HEAD.pack(Tag.DATACLASS, len(text)) + text


_lock = threading.Lock()
_by_class: dict[type, Registered] = {}
_by_title: dict[str, Registered] = {}
_by_signature: dict[str, Registered] = {}


def register_dataclass(cls: _AnyClass) -> _AnyClass:
    """Allow instances of a dataclass to arrive in this process; works as a decorator.

    A rank that sends an instance has registered the class by that. A rank that only receives must register it.

    Only the fields travel, and `__init__` and `__post_init__` do not run on arrival. A class of the same module and
    name takes the place of the one registered before.

    Args:
        cls: The dataclass.

    Returns:
        The same class.

    Raises:
        TypeError: It is not a dataclass, or one whose instances cannot be made from fields alone.

    Examples:
        >>> from dataclasses import dataclass
        >>> @dist.register_dataclass
        ... @dataclass
        ... class Batch:
        ...     step: int
        ...     loss: float
        >>> batches = [None, None]
        >>> dist.all_gather_object(batches, Batch(step=rank, loss=0.5))
        >>> batches
        [Batch(step=0, loss=0.5), Batch(step=1, loss=0.5)]
    """
    if not isinstance(cls, type):
        raise TypeError(f"{cls!r} is not a dataclass")
    register(cls)
    return cls


def register(cls: type) -> Registered:
    """Return the entry of a dataclass, made now if it is new."""
    entry = _by_class.get(cls)
    if entry is not None:
        return entry
    _check(cls)
    entry = Registered(cls)
    with _lock:
        old = _by_title.get(entry.title)
        if old is not None:
            del _by_class[old.cls], _by_signature[old.signature]
        _by_title[entry.title] = entry
        _by_class[cls] = entry
        _by_signature[entry.signature] = entry
    return entry


def find(signature: str) -> Registered:
    """Return the entry that a sender means.

    Raises:
        DecodeError: No such class is registered here, or it has other fields.
    """
    entry = _by_signature.get(signature)
    if entry is not None:
        return entry
    title, _, fields = signature[:300].partition("(")
    known = _by_title.get(title)
    if known is not None:
        raise DecodeError(
            f"the dataclass {title} has the fields ({fields} where it was sent, and ({', '.join(known.names)}) here; "
            f"all ranks must run the same code"
        )
    raise DecodeError(
        f"a dataclass {title!r} arrived that this process has not registered; put @rankwise.register_dataclass "
        f"on it, in a module that this rank imports"
    )


def _check(cls: type) -> None:
    if "__dataclass_fields__" not in vars(cls):
        raise TypeError(f"{cls.__qualname__} is not a dataclass (a subclass of one needs @dataclass of its own)")
    try:
        object.__new__(cls)
    except TypeError as error:
        raise TypeError(f"instances of {cls.__qualname__} cannot be made from fields alone: {error}") from error


def _title(cls: type) -> str:
    # The program's main module has another name in the processes that multiprocessing spawns.
    module = "__main__" if cls.__module__ == "__mp_main__" else cls.__module__
    return f"{module}:{cls.__qualname__}"
