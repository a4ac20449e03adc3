"""`MpiMessages`: the messages of one group on MPI.

A receive is posted when its message has been met by a matched probe, so that its size is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from rankwise.arrays import Array
from rankwise.contract import Context
from rankwise.errors import DistError
from rankwise.work import COMPLETED, Work
from rankwise_mpi.counts import message
from rankwise_mpi.group import MpiGroup
from rankwise_mpi.works import ReceiveWork, RequestWork, size_of, too_long

if TYPE_CHECKING:
    from rankwise_mpi.pages import Pages
    from rankwise_mpi.process import Process

__all__ = ["MpiMessages"]

_BYTE, _ANY_SOURCE = MPI.BYTE, MPI.ANY_SOURCE

#: A message of up to so many bytes is received by a blocking call once it has been met: its sender is done with it,
#: or as good as done.
_SHORT_MESSAGE = 64 << 10


class MpiMessages(MpiGroup):
    """One group on MPI, with its point-to-point operations.

    Args:
        context: What the core says of the group.
        process: MPI in this process.
        pages: The group's own communicators.
    """

    def __init__(self, context: Context, process: Process, pages: Pages) -> None:
        super().__init__(context, process, pages)
        self._isend, self._improbe = self._comm.Isend, self._comm.Improbe

    def isend(self, array: Array, dst: int, tag: int) -> Work:
        """Begin to send; see `Communicator.isend`."""
        self._ready(array)
        what = f"isend(dst={self.context.global_ranks[dst]}, tag={tag})"
        comm, place = self._pages.place(tag)
        try:
            request = comm.Isend(message(array, array.nbytes, self.limit), dst, place)
            if request.Test():
                return COMPLETED
            return self._started(RequestWork(self, what, self.context.timeout_s, request, array))
        except MPI.Exception as error:
            raise self._fatal(what, error) from error
        except BaseException as stop:
            self._break_off(what, None, array, stop)
            raise

    def irecv(self, array: Array, src: int | None, tag: int) -> Work:
        """Begin to receive; see `Communicator.irecv`."""
        self._ready(array)
        work = ReceiveWork(self, array, src, tag, self.context.timeout_s)
        self.receives.add(work)
        return self._started(work)

    def send(self, array: Array, dst: int, tag: int, timeout_s: float) -> None:
        """Send, and wait until the buffer is the caller's again."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        if self._on_device:
            self._ready(array)
        comm, place = (self._comm, tag) if tag <= self._last_tag else self._pages.place(tag)
        request = None
        try:
            request = comm.Isend(message(array, array.nbytes, self.limit), dst, place)
            test = request.Test
            for _ in self.first_looks:
                if test():
                    return
            self.look_on(f"send(dst={self.context.global_ranks[dst]})", request, array, timeout_s)
        except MPI.Exception as error:
            raise self._fatal("send", error) from error
        except BaseException as stop:
            self._break_off("send", request, array, stop)
            raise

    def recv(self, array: Array, src: int | None, tag: int, timeout_s: float) -> int:
        """Receive, and return the sender's group rank."""
        if self.receives.ages:
            return super().recv(array, src, tag, timeout_s)
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        improbe, place = (self._improbe, tag) if tag <= self._last_tag else self._far("Improbe", tag)
        source = _ANY_SOURCE if src is None else src
        status = MPI.Status()
        room = nbytes = array.nbytes
        buffer = array, room, _BYTE
        met = request = None
        try:
            for _ in self.first_looks:
                if (met := improbe(source, place, status)) is not None:
                    break
            else:
                met = self._meet(improbe, source, place, status, timeout_s)
            if status.count != room:  # a count that 32 bits cannot hold is none either
                nbytes = size_of(status)
                if nbytes > room:
                    raise too_long(self, met, status, nbytes, array, tag)
                buffer = message(array, nbytes, self.limit)
            if nbytes <= _SHORT_MESSAGE:
                met.Recv(buffer)
            else:
                request = met.Irecv(buffer)
                test = request.Test
                for _ in self.first_looks:
                    if test():
                        break
                else:
                    self.look_on("recv", request, array, timeout_s)
        except MPI.Exception as error:
            raise self._fatal("recv", error) from error
        except BaseException as stop:
            if met is not None and not isinstance(stop, DistError):
                self._break_off("recv", request, array, stop)
            raise
        return status.Get_source() if src is None else src

    def _far(self, call: str, tag: int) -> tuple[Callable[..., Any], int]:
        """Return a call of the communicator on which a tag beyond the first page lies, and the tag there."""
        comm, place = self._pages.place(tag)
        return getattr(comm, call), place

    def _meet(
        self, improbe: Callable[..., MPI.Message | None], source: int, tag: int, status: MPI.Status, timeout_s: float
    ) -> MPI.Message:
        """Wait for a message; nothing is lost if it does not come."""
        met: MPI.Message | None = None

        def look() -> bool:
            nonlocal met
            met = improbe(source, tag, status)
            return met is not None

        if not self.wait_until(look, timeout_s) or met is None:
            name = "anyone" if source == _ANY_SOURCE else str(self.context.global_ranks[source])
            raise self.late(f"recv(src={name})", timeout_s)
        return met
