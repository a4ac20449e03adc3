"""Messages into arrays of a device by way of the host, on a backend whose own messages are of the host."""

from __future__ import annotations

from collections.abc import Callable

from rankwise.backends.apart import ApartWork
from rankwise.basics.arrays import Array
from rankwise.basics.devices import kind_of, on_device_of, to_device, to_host
from rankwise.basics.work import Work

__all__ = ["Landing"]


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
