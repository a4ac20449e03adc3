"""`MpiMessages`: the messages of one group on MPI.

A receive is posted when its message has been met by a matched probe, so that its size is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from mpi4py import MPI

from rankwise.backends import COMPLETED, Array, Work
from rankwise.errors import DistError
from rankwise_mpi.counts import message
from rankwise_mpi.group import MpiGroup
from rankwise_mpi.works import ReceiveWork, RequestWork, size_of, too_long

__all__ = ["SHORT_MESSAGE", "MpiMessages"]

_ANY_SOURCE = MPI.ANY_SOURCE

#: A message of up to so many bytes is received by a blocking call once it has been met: its sender is done with it,
#: or as good as done.
SHORT_MESSAGE = 64 << 10


class MpiMessages(MpiGroup):
    """One group on MPI, with its point-to-point operations."""

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
        self._ready(array)
        comm, place = self._pages.place(tag)
        request = None
        try:
            request = comm.Isend(message(array, array.nbytes, self.limit), dst, place)
            self.look_on(f"send(dst={self.context.global_ranks[dst]})", request, array, timeout_s)
        except BaseException as stop:
            self.stopped("send", request, array, stop)

    def recv(self, array: Array, src: int | None, tag: int, timeout_s: float) -> int:
        """Receive, and return the sender's group rank."""
        if self.receives.ages:
            return super().recv(array, src, tag, timeout_s)
        self._ready(array)
        comm, place = self._pages.place(tag)
        status = MPI.Status()
        met = None
        try:
            met = self.meet(comm.Improbe, _ANY_SOURCE if src is None else src, place, status, timeout_s)
            self.take(met, status, array, tag, timeout_s)
        except BaseException as stop:
            self.stopped_receiving(met, None, array, stop)
        return status.Get_source()

    # ------------------------------------------------------------------ for the shortest ways

    def meet(
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

    def take(self, met: MPI.Message, status: MPI.Status, array: Array, tag: int, timeout_s: float) -> None:
        """Receive a message that was met, whatever its size."""
        nbytes = size_of(status)
        if nbytes > array.nbytes:
            raise too_long(self, met, status, nbytes, array, tag)
        buffer = message(array, nbytes, self.limit)
        if nbytes <= SHORT_MESSAGE:
            met.Recv(buffer)
            return
        request = met.Irecv(buffer)
        try:
            self.look_on("recv", request, array, timeout_s)
        except BaseException as stop:
            self.stopped("recv", request, array, stop)

    def stopped_receiving(
        self, met: MPI.Message | None, request: MPI.Request | None, array: Array, stop: BaseException
    ) -> NoReturn:
        """Raise what has stopped a receive; the group fails with it if it had met its message, which is lost now."""
        if isinstance(stop, DistError) or (met is None and not isinstance(stop, MPI.Exception)):
            raise stop
        self.stopped("recv", request, array, stop)
