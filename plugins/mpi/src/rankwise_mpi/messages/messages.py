"""`Messages`: the point-to-point operations of one group on MPI.

A receive is posted when its message has been met by a matched probe, so that its size is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from mpi4py import MPI

from rankwise.backends import COMPLETED, Array, Context, Status, Work
from rankwise.errors import DistError
from rankwise_mpi.group.endpoint import Endpoint
from rankwise_mpi.group.works import ReceiveWork, RequestWork, refused
from rankwise_mpi.library.counts import message, size_of

_ANY_SOURCE = MPI.ANY_SOURCE

#: A message of up to so many bytes is received by a blocking call once it has been met: it has come as a whole.
SHORT_MESSAGE = 1 << 10


class MpiMessages:
    """The messages of one group.

    Args:
        endpoint: This rank's end of the group.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.context: Context = endpoint.context
        self.rank, self.size = endpoint.rank, endpoint.size
        self._endpoint = endpoint
        self._place = endpoint.pages.place

    def isend(self, array: Array, dst: int, tag: int) -> Work:
        """Begin to send; see `Communicator.isend`."""
        endpoint = self._endpoint
        endpoint.ready(array)
        what = f"isend(dst={self.context.global_ranks[dst]}, tag={tag})"
        comm, place = self._place(tag)
        try:
            request = comm.Isend(message(array, array.nbytes, endpoint.limit), dst, place)
            if request.Test():
                return COMPLETED
            return endpoint.started(RequestWork(endpoint, what, self.context.timeout_s, request, array))
        except BaseException as stop:
            endpoint.stopped(what, None, array, stop)

    def irecv(
        self,
        array: Array,
        src: int | None,
        tag: int,
        finish: Callable[[int], object] | None = None,
        head_nbytes: int = 0,
    ) -> Work:
        """Begin to receive; see `Communicator.irecv`, and `ReceiveWork` for `finish` and `head_nbytes`."""
        endpoint = self._endpoint
        endpoint.ready(array)
        work = ReceiveWork(endpoint, array, src, tag, finish, head_nbytes)
        endpoint.receives.add(work)
        return endpoint.started(work)

    def send(self, array: Array, dst: int, tag: int, timeout_s: float) -> None:
        """Send, and wait until the buffer is the caller's again."""
        endpoint = self._endpoint
        endpoint.ready(array)
        comm, place = self._place(tag)
        request = None
        try:
            request = comm.Isend(message(array, array.nbytes, endpoint.limit), dst, place)
            endpoint.look_on(f"send(dst={self.context.global_ranks[dst]})", request, array, timeout_s)
        except BaseException as stop:
            endpoint.stopped("send", request, array, stop)

    def recv(self, array: Array, src: int | None, tag: int, timeout_s: float) -> int:
        """Receive, and return the sender's group rank; only where no older receive is waiting."""
        self._endpoint.ready(array)
        comm, place = self._place(tag)
        status = MPI.Status()
        met = None
        try:
            met = self.meet(comm.Improbe, _ANY_SOURCE if src is None else src, place, status, timeout_s)
            self.take(met, status, array, tag, timeout_s)
        except BaseException as stop:
            self.stopped_receiving(met, None, array, stop)
        return status.Get_source()

    def iprobe(self, src: int | None, tag: int) -> Status | None:
        """Return what the message is that a receive would meet now; see `Communicator.iprobe`."""
        endpoint, status = self._endpoint, MPI.Status()
        endpoint.ready()
        try:
            if not endpoint.receives.probe(src, tag, status):
                return None
        except BaseException as stop:
            self.stopped_receiving(None, None, None, stop)
        return Status(status.Get_source(), tag, size_of(status))

    # ------------------------------------------------------------------ for the fast path

    def meet(
        self, improbe: Callable[..., MPI.Message | None], source: int, tag: int, status: MPI.Status, timeout_s: float
    ) -> MPI.Message:
        """Wait for a message; nothing is lost if it does not come."""
        met: MPI.Message | None = None

        def look() -> bool:
            nonlocal met
            met = improbe(source, tag, status)
            return met is not None

        if not self._endpoint.wait_for_message(look, timeout_s) or met is None:
            name = "anyone" if source == _ANY_SOURCE else str(self.context.global_ranks[source])
            raise self._endpoint.late(f"recv(src={name})", timeout_s)
        return met

    def take(self, met: MPI.Message, status: MPI.Status, array: Array, tag: int, timeout_s: float) -> None:
        """Receive a message that was met, whatever its size."""
        endpoint, nbytes = self._endpoint, size_of(status)
        if nbytes > array.nbytes:
            raise refused(endpoint, met, status, array, tag)
        buffer = message(array, nbytes, endpoint.limit)
        if nbytes <= SHORT_MESSAGE:
            met.Recv(buffer)
            return
        request = met.Irecv(buffer)
        try:
            endpoint.look_on("recv", request, array, timeout_s)
        except BaseException as stop:
            endpoint.stopped("recv", request, array, stop)

    def stopped_receiving(
        self, met: MPI.Message | None, request: MPI.Request | None, array: Array | None, stop: BaseException
    ) -> NoReturn:
        """Raise what has stopped a receive; the group fails with it if it had met its message, which is lost now."""
        if isinstance(stop, DistError) or (met is None and not isinstance(stop, MPI.Exception)):
            raise stop
        self._endpoint.stopped("recv", request, array, stop)
