"""`register_chaos`: a backend that does to another one's messages what networks and people do, on a seed."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any

import numpy as np

from rankwise.arrays import Array
from rankwise.capability import COLLECTIVES, Capabilities, Device, Support, derived
from rankwise.contract import BackendSpec, Communicator, Context
from rankwise.deadline import Deadline
from rankwise.errors import DistBackendError, DistError
from rankwise.registry import registry
from rankwise.testing.local import IN_THREADS
from rankwise.work import COMPLETED, FutureWork, Work

__all__ = ["Chaos", "ChaosCommunicator", "RankKilledError", "chaos_spec", "register_chaos"]

_DERIVED = ("async", "uneven", "timeout", "mismatch")
_INHERITED = ("tags", "any_source", "abort", "shrink")


@dataclass(frozen=True)
class Chaos:
    """What happens to messages, each with its probability. The same seed does the same on the same rank.

    A stream is what one rank sends to one peer with one tag, within which the contract promises order.

    Attributes:
        seed: What is rolled for each message depends on this, the group, the rank, the stream and the message's place
            in it, and on nothing else.
        delay: A message is held back, for up to `delay_s`, with all that follow it in its stream.
        reorder: A message is held back until one of another stream has gone out, which is allowed. With `illegal` it
            is held back until the next of its own stream has gone out, which is not.
        drop: A message is lost; its sender never knows.
        corrupt: One bit of a message is turned over.
        kill: The rank dies as it sends a message: its process by SIGKILL; where ranks are threads, the call raises
            `RankKilledError`.
        delay_s: The longest that a message is held back.
        illegal: See `reorder`.
    """

    seed: int = 0
    delay: float = 0.0
    reorder: float = 0.0
    drop: float = 0.0
    corrupt: float = 0.0
    kill: float = 0.0
    delay_s: float = 0.005
    illegal: bool = False


class RankKilledError(DistBackendError):
    """Chaos has killed this rank, which is a thread."""


def register_chaos(inner: str = "local", *, name: str | None = None, **chaos: Any) -> str:
    """Register a backend that wraps another, in this process, and return its name.

    Its collectives are derived, so that chaos is done to the messages they are made of.

    Args:
        inner: The backend to wrap.
        name: The new backend's name; "chaos_" and the inner one's if None. One of that name is replaced.
        **chaos: Fields of `Chaos`.
    """
    spec = chaos_spec(inner, Chaos(**chaos), name)
    registry.register(spec, replace=True)
    return spec.name


def chaos_spec(inner: str, chaos: Chaos, name: str | None = None) -> BackendSpec:
    """Return the declaration of a backend that wraps another; see `register_chaos`."""
    spec = registry.get(inner)
    name = name or f"chaos_{inner}"
    devices = {device: _declared(spec.capabilities, device) for device in spec.capabilities.devices}
    in_threads = spec.launch == IN_THREADS
    return replace(
        spec,
        name=name,
        capabilities=Capabilities(name, devices),
        create=lambda context: ChaosCommunicator(context, spec.create, chaos, in_threads),
    )


class ChaosCommunicator(Communicator):
    """A communicator whose messages suffer."""

    def __init__(
        self, context: Context, create: Callable[[Context], Communicator], chaos: Chaos, in_threads: bool
    ) -> None:
        super().__init__(context)
        parent = context.parent
        wrapped = parent.inner if isinstance(parent, ChaosCommunicator) else parent
        self.inner: Communicator = create(replace(context, parent=wrapped))
        self._chaos, self._in_threads = chaos, in_threads
        self._sent: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()
        self._held = _Held(self.inner)

    def isend(self, array: Array, dst: int, tag: int) -> Work:
        """Roll the dice, then send, or not, or later."""
        chaos, roll = self._chaos, self._dice(dst, tag)
        killed, dropped, corrupted, delayed, reordered = (roll.random() for _ in range(5))
        if killed < chaos.kill:
            self._die()
        if dropped < chaos.drop:
            return COMPLETED
        if corrupted < chaos.corrupt and array.nbytes:
            array = _corrupted(array, roll)
        begin: Callable[[], Work] = partial(self.inner.isend, array, dst, tag)
        hold_s = roll.uniform(0, chaos.delay_s) if delayed < chaos.delay else 0.0
        overtaken = reordered < chaos.reorder
        return self._held.send((dst, tag), begin, hold_s or overtaken * chaos.delay_s, overtaken, chaos.illegal)

    def irecv(self, array: Array, src: int | None, tag: int) -> Work:
        """Receive as the wrapped backend does."""
        return self.inner.irecv(array, src, tag)

    def batch(self) -> AbstractContextManager[None]:
        """Begin several operations together as the wrapped backend does."""
        return self.inner.batch()

    def close(self) -> None:
        """Send what is held back, then close the wrapped communicator."""
        self._held.flush(self.context.timeout_s)
        self.inner.shutdown()

    def abort(self, error: DistError) -> None:
        """Drop what is held back, and abort the wrapped communicator."""
        self._held.drop(error)
        self.inner.fail(error)

    def _dice(self, dst: int, tag: int) -> random.Random:
        with self._lock:
            place = self._sent[dst, tag] = self._sent.get((dst, tag), 0) + 1
        return random.Random(f"{self._chaos.seed}/{self.context.name}/{self.rank}/{dst}/{tag}/{place}")

    def _die(self) -> None:
        if self._in_threads:
            raise RankKilledError(f"chaos has killed rank {self.context.global_ranks[self.rank]}")
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(eq=False)
class _Message:
    begin: Callable[[], Work]
    release_at: float
    work: FutureWork
    overtaken: bool  # goes as soon as something of another stream (or, illegally, of its own) has gone
    illegal: bool


class _Held:
    """The messages that are held back, and the thread that lets them go."""

    def __init__(self, inner: Communicator) -> None:
        self._inner = inner
        self._changed = threading.Condition()
        self._streams: dict[tuple[int, int], deque[_Message]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def send(
        self, stream: tuple[int, int], begin: Callable[[], Work], hold_s: float, overtaken: bool, illegal: bool
    ) -> Work:
        """Send a message when its time has come and what is before it in its stream has gone."""
        message = _Message(begin, monotonic() + hold_s, FutureWork(), overtaken, illegal)
        with self._changed:
            waiting = self._streams.get(stream)
            if hold_s or waiting:
                self._line_up(stream, message)
                return message.work
        # Never with the lock held: what is called when a message arrives may send one itself.
        work = begin()
        self._overtake(stream)
        return work

    def flush(self, timeout_s: float) -> None:
        """Let everything go now, wait until it has gone, and stop the thread."""
        deadline = Deadline(timeout_s)
        with self._changed:
            works = [message.work for waiting in self._streams.values() for message in waiting]
            for waiting in self._streams.values():
                for message in waiting:
                    message.release_at = 0.0
            self._closed = True
            self._changed.notify_all()
        for work in works:
            work.wait(deadline.remaining())
        if self._thread is not None:
            self._thread.join(deadline.remaining())

    def drop(self, error: DistError) -> None:
        """Fail everything that is held back."""
        with self._changed:
            dropped = [message.work for waiting in self._streams.values() for message in waiting]
            self._streams.clear()
            self._changed.notify_all()
        for work in dropped:
            work.fail(error)

    def _line_up(self, stream: tuple[int, int], message: _Message) -> None:
        waiting = self._streams.setdefault(stream, deque())
        if waiting and waiting[-1].overtaken and waiting[-1].illegal:
            waiting[-1].release_at = 0.0
            waiting.insert(len(waiting) - 1, message)
        else:
            waiting.append(message)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="rankwise chaos", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _serve(self) -> None:
        while ready := self._wait():
            for stream, message in ready:
                try:
                    message.begin().add_done_callback(partial(_pass_on, message.work))
                except Exception as error:  # it belongs to whoever waits for the work
                    message.work.fail(error)
                self._forget(stream, message)
                self._overtake(stream)

    def _wait(self) -> list[tuple[tuple[int, int], _Message]]:
        """Return the messages that may go now, the first of each stream, as soon as there is one; none at the end."""
        with self._changed:
            while not self._closed or self._streams:
                now = monotonic()
                first = [(stream, waiting[0]) for stream, waiting in self._streams.items()]
                ready = [(stream, message) for stream, message in first if message.release_at <= now]
                if ready:
                    return ready
                times = [message.release_at for _, message in first]
                self._changed.wait(min(times) - now if times else None)
        return []

    def _forget(self, stream: tuple[int, int], message: _Message) -> None:
        """Take out a message that has gone: until then it holds up those behind it."""
        with self._changed:
            waiting = self._streams.get(stream, deque())
            if message in waiting:  # an abort may have taken it out already
                waiting.remove(message)
            if not waiting:
                self._streams.pop(stream, None)

    def _overtake(self, stream: tuple[int, int]) -> None:
        """Let those go that were waiting for a message of another stream."""
        with self._changed:
            for other, waiting in self._streams.items():
                if other != stream and waiting[0].overtaken and not waiting[0].illegal:
                    waiting[0].release_at = 0.0
                    self._changed.notify_all()


def _pass_on(outer: FutureWork, inner: Work) -> None:
    error = inner.exception()
    if error is None:
        outer.succeed()
    else:
        outer.fail(error)


def _corrupted(array: Array, roll: random.Random) -> Array:
    raw = array.reshape(-1).view(np.uint8).copy()
    raw[roll.randrange(raw.size)] ^= 1 << roll.randrange(8)
    return raw


def _declared(table: Capabilities, device: str) -> Device:
    send = table.cell("send", device)
    collective = replace(send, support=send.support if send.support is Support.CONDITIONAL else Support.DERIVED)
    ops = {op: table.cell(op, device) for op in ("send", "recv")}
    if send.support is not Support.NO:
        ops.update(dict.fromkeys(COLLECTIVES, collective))
    features = {name: table.cell(name, device) for name in _INHERITED}
    return Device(ops, {**features, **derived(*_DERIVED)})
