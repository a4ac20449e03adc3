"""The two ends of a message as works, and messages to oneself, whose ends meet here."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from rankwise.backends import Array
from rankwise.errors import DistBackendError, DistError
from rankwise_nccl.library.datatypes import BYTE
from rankwise_nccl.queues.queue import CommQueue
from rankwise_nccl.queues.works import NcclWork

#: On the queue of a direction the sender comes first, and the receiver second.
_SENDER, _RECEIVER = 0, 1


def sending(queue: CommQueue, array: Array, name: int, timeout_s: float, verb: str) -> NcclWork:
    """Return the work that sends `array` along a queue; `name` is the receiver's global rank."""
    address, nbytes = array.data.ptr, array.nbytes

    def call(comm: Any, stream: int) -> None:
        comm.send(address, nbytes, BYTE, _RECEIVER, stream)

    return NcclWork(queue, f"{verb} to rank {name}", call, (array,), timeout_s, peers=(name,))


def receiving(queue: CommQueue, array: Array, source: int, name: int, timeout_s: float, verb: str) -> NcclWork:
    """Return the work that receives `array`; `source` is the sender's group rank, `name` its global one."""
    address, nbytes = array.data.ptr, array.nbytes

    def call(comm: Any, stream: int) -> None:
        comm.recv(address, nbytes, BYTE, _SENDER, stream)

    return NcclWork(queue, f"{verb} from rank {name}", call, (array,), timeout_s, source=source, peers=(name,))


class SelfMessages:
    """Sends and receives of a rank with itself. NCCL takes both ends only together, in one group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sends: deque[NcclWork] = deque()
        self._receives: deque[NcclWork] = deque()

    def meet(self, work: NcclWork, is_receive: bool) -> list[NcclWork]:
        """Return the two ends to be issued together, or nothing if there is only one so far, or nothing to move."""
        mine, theirs = (self._receives, self._sends) if is_receive else (self._sends, self._receives)
        with self._lock:
            while theirs and theirs[0].ended:  # given up by a time-out
                theirs.popleft()
            if not theirs:
                mine.append(work)
                work.queue.unmatched.append(work)
                return []
            other = theirs.popleft()
            work.queue.unmatched.remove(other)
        return _joined(other, work) if is_receive else _joined(work, other)


def _joined(send: NcclWork, receive: NcclWork) -> list[NcclWork]:
    source, target = send.buffers[0], receive.buffers[0]
    if source.nbytes > target.nbytes:
        error = _too_long(receive, source.nbytes, target.nbytes)
        send.end(error)
        receive.end(error)
        return []
    if not source.nbytes:
        send.end(None)
        receive.end(None)
        return []
    origin, address, nbytes = source.data.ptr, target.data.ptr, source.nbytes

    def give(comm: Any, stream: int) -> None:
        comm.send(origin, nbytes, BYTE, 0, stream)

    def take(comm: Any, stream: int) -> None:
        comm.recv(address, nbytes, BYTE, 0, stream)

    send.call, receive.call = give, take
    return [send, receive]


def _too_long(work: NcclWork, sent: int, room: int) -> DistError:
    return DistBackendError(f"{work.title}: the message has {sent} bytes, but the buffer only {room}")
