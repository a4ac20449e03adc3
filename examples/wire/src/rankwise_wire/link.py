"""`Link`: the connection to one other rank, and the two threads that read and write it."""

from __future__ import annotations

import os
import socket
import struct
import threading
from contextlib import suppress
from enum import IntEnum
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np

from rankwise.backends import COMPLETED, ApartWork, Work, describe_dtype, described_dtype
from rankwise.errors import DistError


class Kind(IntEnum):
    """What a message is for."""

    MESSAGE = 0  #: of the program, or of what the core makes of messages
    OWN = 1  #: of a collective of this backend
    GOODBYE = 2  #: the last one


#: Kind, tag, mark of the dtype, length of its description, and whether the payload is here or in the next packet.
HEADER = struct.Struct("<BqQH?")
Payload = bytes | bytearray | memoryview
#: What is to be written: header and a short payload; a longer one; the work that ends then.
_Item = tuple[bytes, Payload | None, ApartWork]
#: A dtype, or what stands for one that every rank knows.
Dtype = np.dtype[Any] | int


class Owner(Protocol):
    """Who has links: told what comes, and asked why nothing more does."""

    def deliver(self, kind: Kind, src: int, tag: int, payload: Payload, dtype: Dtype) -> None:
        """Take a message."""

    def ended(self, peer: int) -> None:
        """Note that nothing more will come from a rank."""

    def error_of(self, peer: int) -> DistError:
        """Return why nothing can be sent to a rank any more."""


class Link:
    """The way to one rank. A work ends when the system has its bytes: what a rank has sent outlives its process.

    A short message is written by its sender's thread, if nothing stands in line; all else by the link's thread. The
    other end always reads, so a write never waits for a receive.
    """

    def __init__(self, owner: Owner, peer: int, connection: Connection[Any, Any], short_nbytes: int) -> None:
        self.owner, self.peer, self.short_nbytes, self._connection = owner, peer, short_nbytes, connection
        self.moved_nbytes = 0
        self._line: SimpleQueue[_Item | None] = SimpleQueue()
        self._in_line, self._entering, self._writing = 0, threading.Lock(), threading.Lock()
        self._threads = [
            threading.Thread(target=run, name=f"wire {run.__name__} {peer}", daemon=True)
            for run in (self._write, self._read)
        ]

    def start(self) -> None:
        """Begin to read and write."""
        for thread in self._threads:
            thread.start()

    def send(self, kind: Kind, tag: int, payload: Payload, dtype: np.dtype[Any]) -> Work:
        """Send a message; return the work that ends when its memory is free."""
        mark, described = describe_dtype(dtype)
        is_short = len(payload) <= self.short_nbytes
        head = HEADER.pack(kind, tag, mark, len(described), is_short) + described
        if is_short and self._written_here(head + payload):
            return COMPLETED
        work = ApartWork()
        self._enter((head + payload, None, work) if is_short else (head, payload, work))
        return work

    def _written_here(self, packet: bytes) -> bool:
        """Write a short message if it is its turn; an error is left to the thread, which gets it again."""
        if not self._writing.acquire(blocking=False):
            return False
        try:
            if self._in_line:
                return False
            self._connection.send_bytes(packet)
            self.moved_nbytes += len(packet)
            return True
        except OSError:
            return False
        finally:
            self._writing.release()

    def _enter(self, item: _Item) -> None:
        with self._entering:
            self._in_line += 1
        self._line.put(item)

    def waiting(self) -> int:
        """Return how many messages stand in line."""
        return self._in_line

    def say_goodbye(self) -> None:
        """Let the writing end when all that stands in line has been written."""
        self._enter((HEADER.pack(Kind.GOODBYE, 0, 0, 0, True), None, ApartWork()))
        self._line.put(None)

    def written_by(self, seconds: float) -> bool:
        """Wait until the writing has ended, and tell whether it has."""
        self._threads[0].join(seconds)
        return not self._threads[0].is_alive()

    def cut(self) -> None:
        """End both directions: a read still gets what has come. Never blocks, and may be called again."""
        with suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as half:
            half.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the descriptor and the threads back; what is still in line fails."""
        self.cut()
        self._line.put(None)
        for thread in self._threads:
            thread.join()
        self._connection.close()

    def _write(self) -> None:
        while (item := self._line.get()) is not None:
            head, payload, work = item
            try:
                with self._writing:
                    self._connection.send_bytes(head)
                    if payload is not None:
                        self._connection.send_bytes(payload)
                self.moved_nbytes += len(head) + len(payload or b"")
                work.succeed()
            except OSError:
                work.fail(self.owner.error_of(self.peer))
            with self._entering:
                self._in_line -= 1

    def _read(self) -> None:
        with suppress(OSError, EOFError):
            while True:
                packet = memoryview(self._connection.recv_bytes())
                kind, tag, mark, length, is_whole = HEADER.unpack_from(packet)
                if kind == Kind.GOODBYE:
                    break
                begin = HEADER.size + length
                payload = packet[begin:] if is_whole else self._connection.recv_bytes()
                dtype = described_dtype(mark, bytes(packet[HEADER.size : begin]))
                self.owner.deliver(Kind(kind), self.peer, tag, payload, dtype)
        self.owner.ended(self.peer)
