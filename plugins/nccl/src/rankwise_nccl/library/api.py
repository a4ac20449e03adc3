"""What is used of CuPy, in one place, and NCCL's groups of calls."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

__all__ = ["Api", "grouped"]


class Api(NamedTuple):
    """All that is used of CuPy: the packages `cupy`, `cupy.cuda` and `cupy.cuda.nccl`."""

    cupy: Any
    cuda: Any
    nccl: Any

    @classmethod
    def installed(cls) -> Api:
        """Import them."""
        import cupy
        from cupy.cuda import nccl

        return cls(cupy, cupy.cuda, nccl)


class grouped:
    """A block whose calls are handed over to NCCL together; the group is ended whatever happens in it.

    Written out, as a generator takes three times as long.
    """

    __slots__ = ("_nccl",)

    def __init__(self, nccl: Any) -> None:
        self._nccl = nccl

    def __enter__(self) -> None:
        self._nccl.groupStart()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._nccl.groupEnd()
            return
        with suppress(Exception):  # it fails too after a call that has failed, and knows less about it
            self._nccl.groupEnd()
