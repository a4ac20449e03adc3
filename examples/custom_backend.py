"""Bring a backend of your own: here messages go through named pipes, and rankwise makes every collective of them.

    rankwise run -n 4 custom_backend.py

Four methods make a backend: isend, irecv, abort, close. One that others should find by its name is a package with an
entry point; "Writing a backend" in the documentation shows that, and the kit that proves a backend.
"""

from __future__ import annotations

import os
import select
import struct
import tempfile
import threading
from io import FileIO
from typing import Any

import numpy as np

import rankwise as dist
from rankwise.backends import COLLECTIVES, COMPLETED, Capabilities, Device, Mailbox, as_bytes, derived, native

HEADER = struct.Struct("<qQ")  # tag, number of bytes
GOODBYE = -1
#: What it can do. The core derives all collectives; a backend that has one of its own would declare it native.
TABLE = Capabilities(
    "pipes",
    {
        "cpu": Device(
            {**native("send", "recv"), **derived(*COLLECTIVES)},
            {
                **native("tags", "any_source", "short_messages", "abort"),
                **derived("async", "uneven", "sparse", "timeout", "mismatch"),
            },
        )
    },
)


class PipeCommunicator(dist.Communicator):
    """One group. Each pair of ranks has a pipe in each direction, and a thread reads what comes."""

    def __init__(self, context: dist.Context) -> None:
        super().__init__(context)
        assert context.store is not None
        self.mailbox, self.lock = Mailbox(context.global_ranks), threading.Lock()
        peers = [peer for peer in range(context.size) if peer != context.rank]
        # The store is there to agree on things while a group is made.
        if context.rank == 0:
            folder = tempfile.mkdtemp(prefix="pipes-")
            for src in range(context.size):
                for dst in range(context.size):
                    os.mkfifo(f"{folder}/{src}-{dst}")
            context.store.set("folder", folder)
        folder = context.store.get("folder").decode()
        incoming = {peer: os.open(f"{folder}/{peer}-{self.rank}", os.O_RDONLY | os.O_NONBLOCK) for peer in peers}
        context.store.barrier("open for reading", context.size)
        self.pipes = {peer: FileIO(f"{folder}/{self.rank}-{peer}", "wb") for peer in peers}
        context.store.barrier("open for writing", context.size)
        if context.rank == 0:
            remove(folder)  # a process that has opened a pipe keeps it
        self.ending, self.end = os.pipe()
        self.readers = [threading.Thread(target=self.listen, args=pair, daemon=True) for pair in incoming.items()]
        for reader in self.readers:
            reader.start()

    def isend(self, array: Any, dst: int, tag: int) -> dist.Work:
        """Write the message; the other side always reads, so this does not wait for a receive."""
        payload = as_bytes(array)
        if dst == self.rank:
            self.mailbox.deliver(dst, tag, bytes(payload))
            return COMPLETED
        try:
            with self.lock:
                write(self.pipes[dst], HEADER.pack(tag, payload.nbytes))
                write(self.pipes[dst], payload)
        except (OSError, ValueError) as error:  # the reader is gone, or we have given up
            raise self.failure or self.lost(dst) from error
        return COMPLETED

    def irecv(self, array: Any, src: int | None, tag: int) -> dist.Work:
        """Let the message and the receive find each other, whichever is first."""
        return self.mailbox.receive(array, src, tag)

    def abort(self, error: dist.DistError) -> None:
        """End what is pending here, and by closed pipes also at the peers."""
        self.mailbox.fail(error)
        for pipe in self.pipes.values():
            pipe.close()

    def close(self) -> None:
        """Say goodbye, so that nobody takes the end of a pipe for a death."""
        for pipe in self.pipes.values():
            if not pipe.closed:
                try:
                    write(pipe, HEADER.pack(GOODBYE, 0))
                except BrokenPipeError:
                    continue
        self.abort(self.lost(self.rank))
        os.close(self.end)  # a peer may keep its group for longer, so our readers do not wait for its goodbye
        for reader in self.readers:
            reader.join()
        os.close(self.ending)

    def listen(self, peer: int, descriptor: int) -> None:
        """Take all messages of one peer, until it has no more or this group ends."""
        os.set_blocking(descriptor, True)
        with FileIO(descriptor) as pipe:
            while self.ending not in select.select([descriptor, self.ending], [], [])[0]:
                if not self.take(pipe, peer):
                    break

    def take(self, pipe: FileIO, peer: int) -> bool:
        """Deliver one message; return whether more may come."""
        header = read(pipe, HEADER.size)
        tag, nbytes = HEADER.unpack(header) if len(header) == HEADER.size else (None, 0)
        payload = read(pipe, nbytes)
        if tag is None or len(payload) < nbytes:  # it has died or given up, so nobody may go on waiting
            self.mailbox.fail(self.lost(peer))
            return False
        if tag == GOODBYE:
            self.mailbox.fail(self.lost(peer), src=peer)
            return False
        self.mailbox.deliver(peer, tag, payload)
        return True

    def lost(self, peer: int) -> dist.DistError:
        """Name a peer whose pipe has ended."""
        return dist.PeerDiedError(self.context.global_ranks[peer], "this host", "its pipe was closed")


def write(pipe: FileIO, data: bytes | memoryview) -> None:
    """Write everything; a pipe takes as much at a time as it has room for."""
    rest = memoryview(data)
    while rest:
        rest = rest[pipe.write(rest) :]


def read(pipe: FileIO, nbytes: int) -> bytes:
    """Read so much, or less where the pipe ends."""
    data = bytearray()
    while len(data) < nbytes and (more := pipe.read(nbytes - len(data))):
        data += more
    return bytes(data)


def remove(folder: str) -> None:
    """Remove a folder of pipes."""
    for name in os.listdir(folder):
        os.unlink(f"{folder}/{name}")
    os.rmdir(folder)


def main() -> None:
    """Register the backend, use it like any other, and check what it does."""
    dist.register_backend("pipes", PipeCommunicator, extended_api=True, capabilities=TABLE)
    dist.init_process_group("pipes")
    rank, size = dist.get_rank(), dist.get_world_size()

    array = np.arange(100_000) + rank
    dist.all_reduce(array)
    expected = size * np.arange(100_000) + sum(range(size))
    parts = [np.zeros(r + 1) for r in range(size)]  # uneven parts need nothing more
    dist.all_gather(parts, np.full(rank + 1, float(rank)))
    words: list[Any] = [None] * size
    dist.all_gather_object(words, f"rank {rank}")
    if not np.array_equal(array, expected) or words != [f"rank {r}" for r in range(size)]:
        raise SystemExit(f"rank {rank}: all_reduce or all_gather_object is wrong")
    if not all(np.array_equal(part, np.full(r + 1, float(r))) for r, part in enumerate(parts)):
        raise SystemExit(f"rank {rank}: all_gather is wrong")

    # The core compares what the ranks are about to do, on this backend as on any.
    try:
        dist.all_reduce(np.zeros(3 if rank == 0 else 4))
        caught = size == 1
    except dist.CollectiveMismatchError:
        caught = True
    if not caught:
        raise SystemExit(f"rank {rank}: nobody has noticed that the arrays differ")
    if rank == 0:
        print(f"{size} ranks over {dist.get_backend()!r}")
        print("right: all_reduce, uneven all_gather, objects, and arrays that do not match are refused")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
