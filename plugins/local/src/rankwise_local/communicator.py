"""The backend `local`: the ranks are threads of one process, and a message is a copy in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from uuid import uuid4

from rankwise.backends import (
    API_VERSION,
    COLLECTIVES,
    IN_THREADS,
    ApartWork,
    Array,
    BackendSpec,
    Capabilities,
    Communicator,
    Context,
    Device,
    FutureWork,
    Mailbox,
    Status,
    Work,
    as_bytes,
    derived,
    native,
)
from rankwise.errors import DistError, PeerDiedError
from rankwise.kits import registry

__all__ = ["CAPABILITIES", "LocalCommunicator", "register_local"]

CAPABILITIES = Capabilities(
    "local",
    {
        "cpu": Device(
            ops={**native("send", "recv"), **derived(*COLLECTIVES)},
            features={
                **native("tags", "any_source", "short_messages", "message_dtypes", "probe", "abort"),
                **derived("async", "uneven", "sparse", "timeout", "mismatch", "shrink", "reconfigure"),
            },
        )
    },
)

#: The mailboxes of each group that is being made, by a name that its members have agreed on.
_being_made: dict[str, list[Mailbox]] = {}
_lock = threading.Lock()


class LocalCommunicator(Communicator):
    """One rank's end of a group of threads. A send ends when the message has been received."""

    def __init__(self, context: Context) -> None:
        context.options_as(type(None))
        super().__init__(context)
        self._boxes = _shared_boxes(context)

    def isend(self, array: Array, dst: int, tag: int) -> Work:
        """Offer the array's memory itself; the receiver copies it."""
        work = ApartWork()
        self._boxes[dst].deliver(self.rank, tag, as_bytes(array), _ending(work), array.dtype)
        return work

    def irecv(self, array: Array, src: int | None, tag: int) -> Work:
        """Wait for a message in this rank's mailbox."""
        return self._boxes[self.rank].receive(array, src, tag)

    def iprobe(self, src: int | None, tag: int) -> Status | None:
        """Look into this rank's mailbox."""
        return self._boxes[self.rank].probe(src, tag)

    def close(self) -> None:
        """Leave; what was sent stays for receives that come later, and no receive goes on waiting for more."""
        gone = PeerDiedError(self.context.global_ranks[self.rank], "this process", "it has destroyed the group")
        for box in self._boxes:
            box.keep(self.rank)
            box.fail(gone, src=self.rank)

    def abort(self, error: DistError) -> None:
        """Fail what is pending in everyone's mailbox."""
        for box in self._boxes:
            box.fail(error)


def register_local() -> None:
    """Let `init_process_group("local", ...)` work in this process."""
    registry.register(
        BackendSpec("local", API_VERSION, CAPABILITIES, LocalCommunicator, launch=IN_THREADS, attends=True),
        replace=True,
    )


def _ending(work: FutureWork) -> Callable[[DistError | None], None]:
    def end(error: DistError | None) -> None:
        if error is None:
            work.succeed()
        else:
            work.fail(error)

    return end


def _shared_boxes(context: Context) -> list[Mailbox]:
    if context.store is None:
        return [Mailbox(context.global_ranks) for _ in range(context.size)]
    name = context.store.compare_set("boxes", "", uuid4().hex).decode()
    with _lock:
        boxes = _being_made.setdefault(name, [Mailbox(context.global_ranks) for _ in range(context.size)])
    if context.store.add("have boxes", 1) == context.size:
        with _lock:
            del _being_made[name]
    return boxes
