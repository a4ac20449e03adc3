"""A simulated accelerator, as a vendor's library would drive one: two cards, queues, and memory of their own.

What is put into a queue is done in its order, by the one thread of its card; what is in different queues is done in any
order, and never in the one in which it was put there if that can be avoided. So who reads a result without waiting for
its queue, or writes to memory that another queue still reads, is found out. The memory is reached by copies alone.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["Array", "Queue", "card", "current_card", "current_queue", "empty", "queue"]

COUNT = 2
_PATIENCE_S = 20.0
_here = threading.local()
#: Where memory begins that lies nowhere in this process.
_addresses = itertools.count(1 << 56, 1 << 40)


class Queue:
    """Tasks that are done one after the other."""

    def __init__(self, on: Card) -> None:
        self.tasks: deque[Callable[[], object]] = deque()
        self._card = on

    def put(self, task: Callable[[], object]) -> None:
        """Add a task."""
        self._card.put(self, task)

    def mark(self) -> threading.Event:
        """Return what is set once all that is in the queue now has been done."""
        reached = threading.Event()
        self.put(reached.set)
        return reached

    def wait(self) -> None:
        """Wait for all that is in the queue now."""
        assert self.mark().wait(_PATIENCE_S), "a queue does not come to its end"


class Card:
    """One accelerator: a thread that takes from the queues the task that came last, as far as their orders allow."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._changed = threading.Condition()
        self._busy: dict[Queue, None] = {}
        self.default = Queue(self)
        threading.Thread(target=self._work, name=f"card {number}", daemon=True).start()

    def put(self, queue: Queue, task: Callable[[], object]) -> None:
        with self._changed:
            queue.tasks.append(task)
            self._busy.pop(queue, None)
            self._busy[queue] = None  # the last one now
            self._changed.notify()

    def _work(self) -> None:
        turn = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._busy)
                turn += 1  # the one that came last mostly, but each of them in time
                queue = next(reversed(self._busy)) if turn % 3 else next(iter(self._busy))
                task = queue.tasks.popleft()
                if not queue.tasks:
                    del self._busy[queue]
            task()


_cards = [Card(number) for number in range(COUNT)]


def current_card() -> Card:
    """Return this thread's card."""
    return _cards[getattr(_here, "card", 0)]


def current_queue() -> Queue:
    """Return this thread's queue on its card."""
    own: Queue = getattr(_here, "queues", {}).get(current_card().number, current_card().default)
    return own


@contextmanager
def card(number: int) -> Iterator[None]:
    """Make a card the current one."""
    before = getattr(_here, "card", 0)
    _here.card = number
    try:
        yield
    finally:
        _here.card = before


@contextmanager
def queue() -> Iterator[Queue]:
    """Give this thread a queue of its own on the current card."""
    number, before = current_card().number, getattr(_here, "queues", {})
    _here.queues = {**before, number: Queue(current_card())}
    try:
        yield _here.queues[number]
    finally:
        _here.queues = before


class Array:
    """Some memory of a card: no NumPy array, without arithmetic, and nothing reads it but copies."""

    def __init__(self, on: Card, base: int, memory: Any, view: Any) -> None:
        self.card, self._base, self._memory, self._view = on, base, memory, view
        self.flags = SimpleNamespace(c_contiguous=view.flags.c_contiguous)

    dtype = property(lambda self: self._view.dtype)
    shape = property(lambda self: self._view.shape)
    size = property(lambda self: self._view.size)
    ndim = property(lambda self: self._view.ndim)
    nbytes = property(lambda self: self._view.nbytes)
    itemsize = property(lambda self: self._view.itemsize)
    __array_ufunc__ = None

    @property
    def address(self) -> int:
        """Where it begins."""
        return self._base + int(self._view.ctypes.data - self._memory.ctypes.data)

    def reshape(self, *shape: Any) -> Array:
        """Return the same memory in another shape."""
        return self._seen_as(self._view.reshape(*shape))

    def view(self, dtype: Any) -> Array:
        """Return the same memory as another dtype."""
        return self._seen_as(self._view.view(dtype))

    def __getitem__(self, key: Any) -> Array:
        return self._seen_as(self._view[key])

    def __len__(self) -> int:
        return len(self._view)

    def __repr__(self) -> str:
        return f"<{self.dtype} of shape {self.shape} on card {self.card.number}>"

    def read(self, host: Any) -> None:
        """Copy to the host, once all that is in the current queue has been done."""
        with card(self.card.number):
            current_queue().put(lambda: np.copyto(host, self._view))
            current_queue().wait()

    def write(self, host: Any) -> None:
        """Copy from the host, in the current queue; the memory there must not change before."""
        with card(self.card.number):
            current_queue().put(lambda: np.copyto(self._view, host))

    def copied_from(self, other: Array) -> None:
        """Copy from another array of the same card, in the current queue."""
        assert self.card is other.card, "a card does not reach another's memory"
        with card(self.card.number):
            current_queue().put(lambda: np.copyto(self._view, other._view))

    def _seen_as(self, view: Any) -> Array:
        view = np.asarray(view)
        assert np.may_share_memory(view, self._memory) or not view.size, "this would be a copy"
        return Array(self.card, self._base, self._memory, view)


def empty(shape: Any, dtype: Any) -> Array:
    """Return memory of the current card, full of what nobody has written."""
    memory = np.empty(shape, dtype)
    memory.reshape(-1).view(np.uint8)[...] = 0xA5
    return Array(current_card(), next(_addresses), memory, memory)
