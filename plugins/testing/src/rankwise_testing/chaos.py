"""`register_chaos`: a backend that does to another one's messages what networks and people do, on a seed."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from rankwise.backends import IN_THREADS
from rankwise.errors import DistBackendError, DistError
from rankwise.kits import (
    COLLECTIVES,
    COMPLETED,
    Array,
    BackendSpec,
    Capabilities,
    Communicator,
    Context,
    Device,
    Support,
    Work,
    derived,
    registry,
)
from rankwise_testing.held import Held

_DERIVED = ("async", "uneven", "sparse", "timeout", "mismatch")
_INHERITED = ("tags", "any_source", "short_messages", "message_dtypes", "abort", "shrink")


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
        self._held = Held()

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


def _corrupted(array: Array, roll: random.Random) -> Array:
    raw = array.reshape(-1).view(np.uint8).copy()
    raw[roll.randrange(raw.size)] ^= 1 << roll.randrange(8)
    return raw.view(array.dtype)


def _declared(table: Capabilities, device: str) -> Device:
    send = table.cell("send", device)
    collective = replace(send, support=send.support if send.support is Support.CONDITIONAL else Support.DERIVED)
    ops = {op: table.cell(op, device) for op in ("send", "recv")}
    if send.support is not Support.NO:
        ops.update(dict.fromkeys(COLLECTIVES, collective))
    features = {name: table.cell(name, device) for name in _INHERITED}
    return Device(ops, {**features, **derived(*_DERIVED)})
