"""One device, and the stream that NCCL's part of the work on it is put on."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from rankwise_nccl.library.api import Api

__all__ = ["DEFAULT_STREAMS", "DeviceStream"]

#: Addresses that stand for a default stream; CUDA does not capture the legacy one.
DEFAULT_STREAMS = frozenset({0, 1})

#: Does nothing, any number of times.
_HERE = nullcontext()


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
        with self.on_device():
            self.stream = api.cuda.Stream(non_blocking=True)
        self.address: int = self.stream.ptr

    def on_device(self) -> Any:
        """Return a context in which this device is the current one."""
        if self._current_device() == self.device:
            return _HERE
        return self.api.cuda.Device(self.device)

    def lead(self, event: Any) -> None:
        """Make the caller's stream wait for an event."""
        with self.on_device():
            self._current(self.device).wait_event(event)
