"""What is used of CuPy and NCCL, in one place, and NCCL's groups of calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from rankwise.errors import DistBackendError
from rankwise_nccl.library.binding import Nccl, load
from rankwise_nccl.library.capture import relax


class Api(NamedTuple):
    """All that is used: the packages `cupy` and `cupy.cuda`, and `Nccl`, which has the names of `cupy.cuda.nccl`."""

    cupy: Any
    cuda: Any
    nccl: Any
    #: Lets a thread of ours ask devices while the program captures a graph.
    relax: Callable[[], None] = relax

    @classmethod
    def installed(cls) -> Api:
        """Import them; CuPy's own binding finds and loads the library of NCCL."""
        import cupy
        from cupy.cuda import nccl

        nccl.get_version()
        library = load()
        if library is None:
            raise DistBackendError("CuPy's NCCL is too old: 2.19 or newer is needed")
        return cls(cupy, cupy.cuda, Nccl(library))


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
