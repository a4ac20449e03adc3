"""A lane over several devices of the process, each of which is a rank of NCCL with a stream of its own.

An operation is one call of NCCL per device, all in one group: made one by one, the first would wait for the others,
which the same thread has yet to make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rankwise.errors import DistError, UnsupportedOperationError
from rankwise_nccl.lanes.lane import Lane
from rankwise_nccl.lanes.seat import Seat
from rankwise_nccl.lanes.together import together
from rankwise_nccl.library.api import Api

if TYPE_CHECKING:
    from rankwise_nccl.lanes.works import NcclWork

__all__ = ["DevicesLane"]


class Marks(tuple[Any, ...]):
    """Events, one on each device."""

    __slots__ = ()

    @property
    def done(self) -> bool:
        """Whether all have happened."""
        return all(mark.done for mark in self)


class DevicesLane(Lane):
    """One communicator and one stream on each of several devices.

    The `call` and `after` of its works are given the communicators and the addresses of the streams, in the order of
    the devices. The lane itself is the seat of the first device.

    Args:
        api: CuPy.
        devices: Indices of the devices, each once.
        name: What it is for, in messages.
        start: Makes the NCCL communicators; see `Lane`.
        failed: Told of an error that makes the group unusable.
        flush: Ends the caller's open batch.
    """

    hint = "; perhaps they have called with as many arrays as before, and this rank with more or fewer"

    def __init__(
        self,
        api: Api,
        devices: Sequence[int],
        name: str,
        start: Callable[[Callable[[], bool]], Any],
        failed: Callable[[DistError], object],
        flush: Callable[[], None],
    ) -> None:
        super().__init__(api, devices[0], name, start, _already_connected, failed, flush)
        self.seats: tuple[Seat, ...] = (self, *(Seat(api, device) for device in devices[1:]))
        self._addresses = tuple(seat.address for seat in self.seats)

    def prepare(self, work: NcclWork) -> None:
        """Mark the place of `work` in the caller's stream of each device."""
        capturing = [seat.capturing() for seat in self.seats]
        if any(capturing):
            if not all(capturing):
                raise UnsupportedOperationError(f"{work.title}: some streams of its devices capture a graph, not all")
            self.capture(work)
        marks = []
        for seat in self.seats:
            with seat.on_device():
                marks.append(seat.before())
        work.ready = marks

    def order(self, work: NcclWork) -> None:
        """Make each device's stream wait for what the caller's had to do before `work`."""
        for seat, mark in zip(self.seats, work.ready, strict=True):
            seat.stream.wait_event(mark)

    def hand_over(self, work: NcclWork) -> None:
        """Give `work` to NCCL, on all devices."""
        work.call(self.comm, self._addresses)

    def conclude(self, work: NcclWork) -> None:
        """Put what follows NCCL's part on the streams, and mark the end of `work` on each."""
        if work.after is not None:
            work.after(self._addresses)
        marks = []
        for seat in self.seats:
            with seat.on_device():
                marks.append(seat.after())
        work.done = Marks(marks)

    def join(self, work: NcclWork) -> None:
        """Make the caller's current stream of each device wait for its part."""
        for seat, mark in zip(self.seats, work.done, strict=True):
            seat.lead(mark)

    def _inquire(self, comm: Any) -> None:
        for one in comm or ():
            one.check_async_error()

    def _abort(self, comm: Any) -> None:
        self._end_each("abort", comm)

    def _destroy(self, comm: Any) -> None:
        self._end_each("destroy", comm)

    def _end_each(self, how: str, comm: Any) -> None:
        """End all communicators at the same time: NCCL may have one wait for another."""
        calls = [partial(self._end_one, how, seat, one) for seat, one in zip(self.seats, comm or (), strict=False)]
        together((self.name, call) for call in calls)

    @staticmethod
    def _end_one(how: str, seat: Seat, comm: Any) -> None:
        with seat.on_device():
            getattr(comm, how)()


def _already_connected(comm: Any, stream: Any) -> None:
    """Do nothing: the first collective connects the members."""
