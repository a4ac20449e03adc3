"""Works whose end is another thread's doing: of messages, and of those that come to a device by way of the host."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rankwise.basics.arrays import Array
from rankwise.basics.devices import kind_of, on_device_of, to_device, to_host
from rankwise.basics.interrupts import start_thread
from rankwise.basics.work import FutureWork, Work


class ApartWork(FutureWork):
    """A work that is ended by the thread that moves messages, and perhaps by another rank's.

    That thread must not be kept by a callback, which may wait for messages that only it would bring: each callback runs
    on a thread of its own.
    """

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        """Call `callback(work)` once the work has ended."""
        if self.is_completed():
            super().add_done_callback(callback)
        else:
            super().add_done_callback(lambda work: _begin(callback, work))


class Landing(ApartWork):
    """A receive into an array of a device: a message that has come to the host is copied there before the work ends.

    Args:
        array: The array.
        receive: Begins to receive into an array of the host.
    """

    def __init__(self, array: Array, receive: Callable[[Array], Work]) -> None:
        super().__init__()
        self._array, self._host = array, to_host(array)  # a message may be shorter, and the rest stays what it is
        self._inner = receive(self._host)
        self._inner.add_done_callback(self._land)

    def cancel(self) -> bool:
        """Withdraw the receive if no message has met it."""
        return self._inner.cancel()

    def _land(self, inner: Work) -> None:
        try:
            if (error := inner.exception()) is not None:
                raise error
            kind = kind_of(self._array)
            assert kind is not None
            with on_device_of(self._array), kind.queue():
                to_device(self._array, self._host)
        except BaseException as error:
            self.fail(error)
        else:
            self.nbytes = inner.nbytes
            self.succeed(source=inner.source_rank())


def _begin(callback: Callable[[Work], object], work: Work) -> None:
    start_thread(threading.Thread(target=callback, args=(work,), name="rankwise callback", daemon=True))
