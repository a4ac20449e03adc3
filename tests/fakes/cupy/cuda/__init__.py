"""Streams that are threads, and two devices, which share them."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

__all__ = ["Device", "Event", "Stream", "get_current_stream", "runtime"]

_PATIENCE_S = 20.0
_numbers = itertools.count(100)
_local = threading.local()


class Event:
    """A mark in a stream."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self._happened = threading.Event()

    @property
    def done(self) -> bool:
        """Whether the stream has come to it."""
        return self._happened.is_set()

    def synchronize(self) -> None:
        """Block until the stream has come to it."""
        assert self._happened.wait(_PATIENCE_S), "an event does not happen"


class Stream:
    """Does what is put on it, in order, on a thread that ends with it."""

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        self.ptr = 0 if null else next(_numbers)
        self._tasks: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        threading.Thread(target=_work, args=(self._tasks,), name="fake stream", daemon=True).start()

    def put(self, task: Callable[[], object]) -> None:
        """Add a task."""
        self._tasks.put(task)

    def synchronize(self) -> None:
        """Block until all has been done."""
        over = threading.Event()
        self._tasks.put(over.set)
        assert over.wait(_PATIENCE_S), "a stream does not come to an end"

    def record(self, event: Event | None = None) -> Event:
        """Mark a place in the stream."""
        event = event or Event()
        self.put(event._happened.set)
        return event

    def wait_event(self, event: Event) -> None:
        """Let what follows wait for an event."""
        self.put(lambda: event._happened.wait(_PATIENCE_S))

    def is_capturing(self) -> bool:
        """Say no."""
        return False

    def __enter__(self) -> Stream:
        self._before = getattr(_local, "stream", None)
        _local.stream = self
        return self

    def __exit__(self, *_: Any) -> None:
        _local.stream = self._before

    def __del__(self) -> None:
        self._tasks.put(None)


class Device:
    """One of the devices."""

    compute_capability = "90"

    def __init__(self, device: int | None = None) -> None:
        self.id = getattr(_local, "device", 0) if device is None else device

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __enter__(self) -> Device:
        self._before = getattr(_local, "device", 0)
        _local.device = self.id
        return self

    def __exit__(self, *_: Any) -> None:
        _local.device = self._before

    def synchronize(self) -> None:
        """Wait for the current stream alone: there is nothing else."""
        get_current_stream().synchronize()


def get_current_stream(device_id: int = -1) -> Any:
    """Return this thread's stream; the default one is shared by all threads."""
    return getattr(_local, "stream", None) or _default


def _work(tasks: queue.SimpleQueue[Callable[[], object] | None]) -> None:
    while (task := tasks.get()) is not None:
        task()


_default = Stream(null=True)

runtime = SimpleNamespace(getDeviceCount=lambda: 2, getDevice=lambda: getattr(_local, "device", 0))
