"""One device, and the stream that NCCL's part of the work on it is put on."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from typing import Any

from rankwise_nccl.library.api import Api

#: Addresses that stand for a default stream; CUDA does not capture the legacy one.
DEFAULT_STREAMS = frozenset({0, 1})

#: Does nothing, any number of times.
_HERE = nullcontext()

#: What cudaEventQuery says of an event that is still to happen.
_NOT_READY = 600


def settle_on(api: Api, device: int) -> None:
    """Make a device the current one of a thread of ours, for good, and let it ask that also during captures.

    A thread begins with device 0, and to go back to that, as the end of a context would, makes a context there.
    """
    api.relax()
    if api.cuda.runtime.getDevice() != device:
        ExitStack().enter_context(api.cuda.Device(device))


class DeviceStream:
    """One device with a stream of its own beside the caller's.

    Args:
        api: CuPy.
        device: Index of the device.
    """

    def __init__(self, api: Api, device: int) -> None:
        self.api, self.device = api, device
        # These are on the path of every operation.
        self._new_event, self._current = api.cuda.Event, api.cuda.get_current_stream
        self._current_device = api.cuda.runtime.getDevice
        self._runtime = api.cuda.runtime
        with self.on_device():
            self.stream = api.cuda.Stream(non_blocking=True)
        self.address: int = self.stream.ptr

    def on_device(self) -> Any:
        """Return a context in which this device is the current one."""
        if self._current_device() == self.device:
            return _HERE
        return self.api.cuda.Device(self.device)

    def has_happened(self, event: Any) -> bool:
        """Tell whether the device has come to an event; raise what CUDA has met, of which `Event.done` says nothing."""
        with self.on_device():
            status = self._runtime.eventQuery(event.ptr)
        if status not in (0, _NOT_READY):
            raise self._runtime.CUDARuntimeError(status)
        return not status

    def captures(self) -> bool:
        """Tell whether the caller's current stream is being captured, so that nothing may be asked of a device."""
        current = self._current(self.device)
        return current.ptr not in DEFAULT_STREAMS and bool(current.is_capturing())

    def lead(self, event: Any) -> None:
        """Make the caller's stream wait for an event."""
        with self.on_device():
            self._current(self.device).wait_event(event)
