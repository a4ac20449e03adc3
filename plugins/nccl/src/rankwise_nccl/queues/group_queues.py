"""The queues of one group: for its collectives one per device, for its messages one per direction between two ranks.

Messages have queues of their own, one per direction, since operations of one NCCL communicator run in the order in
which they were issued on all its ranks, which messages need not be. They are made when they are first used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from rankwise.backends import Context, Deadline
from rankwise.errors import DistError
from rankwise_nccl.library.api import Api
from rankwise_nccl.library.datatypes import BYTE
from rankwise_nccl.queues.queue import CommQueue
from rankwise_nccl.queues.startup import Start
from rankwise_nccl.queues.together import together

#: Giving NCCL back takes a moment; one that has not done so by then is left to a thread that ends with the process.
_DESTROY_S = 30.0

#: How long an abort of what the peers do not let go may take.
_ABORT_S = 1.0


class _Key(NamedTuple):
    """Which queue: the sender and the receiver as group ranks, or None for all, and the device."""

    way: tuple[int, int] | None
    device: int


class CommQueues:
    """Makes queues, and keeps them.

    Args:
        api: CuPy.
        context: The group.
        failed: Told when a queue cannot start.
        flush: Issues what the calling thread has in an open batch.
        buffers: Arrays to register.
    """

    def __init__(
        self,
        api: Api,
        context: Context,
        failed: Callable[[DistError], object],
        flush: Callable[[], None],
        buffers: Sequence[Any],
    ) -> None:
        self._api, self._context, self._failed, self._flush = api, context, failed, flush
        self._buffers = buffers
        self._lock = threading.Lock()
        #: By `_Key`; those on the path of an operation look with a plain tuple, which is made sooner and is equal.
        self._queues: dict[Any, CommQueue] = {}
        self._starts: dict[CommQueue, Start] = {}
        self._tokens: list[Any] = []
        self._name = f"group {context.name!r}, rank {context.global_ranks[context.rank]}"

    def collective(self, device: int) -> CommQueue:
        """Return the queue of collectives on a device."""
        return self._queues.get((None, device)) or self._make(_Key(None, device))

    def message(self, source: int, target: int, device: int) -> CommQueue:
        """Return the queue of messages from one rank to another; this rank is one of the two, or both."""
        way = (source, target)
        return self._queues.get((way, device)) or self._make(_Key(way, device))

    def all(self) -> list[CommQueue]:
        """Return the queues that have been made."""
        return list(self._queues.values())

    def outgoing(self) -> list[CommQueue]:
        """Return the queues whose operations have to be over before the group is closed."""
        me = self._context.rank
        return [queue for key, queue in self._queues.items() if key.way is None or key.way[0] == me]

    def devices(self) -> list[int]:
        """Return the devices that collectives have used, the first one first."""
        return [key.device for key in self._queues if key.way is None]

    def absent(self, queue: CommQueue) -> list[int]:
        """Return the global ranks that have not come to a queue that is starting."""
        return self._starts[queue].absent()

    def destroy(self) -> list[str]:
        """Give all queues back, all at the same time, as each waits for its peers; return those that took too long."""
        deadline = Deadline(min(_DESTROY_S, self._context.timeout_s))
        late: list[str] = []

        def destroy(queue: CommQueue) -> None:
            if not queue.destroy(deadline):
                late.append(queue.name)

        stuck = together([(queue.name, partial(destroy, queue)) for queue in self.all()], deadline.timeout_s + _ABORT_S)
        return [*stuck, *late]

    def _make(self, key: _Key) -> CommQueue:
        with self._lock:
            queue = self._queues.get(key)
            if queue is not None:
                return queue
            # Ranks name their devices differently, but use them in one order: the first here is the first there.
            turn = sum(other.way == key.way for other in self._queues)
            context = self._context
            members = tuple(range(context.size)) if key.way is None else tuple(dict.fromkeys(key.way))
            path = "all" if key.way is None else f"{key.way[0]}-to-{key.way[1]}"
            start = Start(self._api, context, members, f"{path}/{turn}", key.device)
            connect = partial(self._connect, key)
            buffers = [buffer for buffer in self._buffers if buffer.device.id == key.device]
            queue = CommQueue(self._api, key.device, self._name, start, connect, self._failed, self._flush, buffers)
            self._queues = {**self._queues, key: queue}  # others read it without the lock
            self._starts[queue] = start
        queue.start()
        return queue

    def _connect(self, key: _Key, comm: Any, stream: Any) -> None:
        """Send one byte along a new queue of messages."""
        if key.way is None or key.way[0] == key.way[1]:
            return
        with stream:
            token = self._api.cupy.empty(1, "uint8")
        self._tokens.append(token)  # not every allocator waits for the stream before it gives memory out again
        if key.way[0] == self._context.rank:
            comm.send(token.data.ptr, 1, BYTE, 1, stream.ptr)
        else:
            comm.recv(token.data.ptr, 1, BYTE, 0, stream.ptr)
