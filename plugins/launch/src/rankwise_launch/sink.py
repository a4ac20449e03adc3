"""Where output goes: the launcher's own streams, which never wait for their readers, and the log files of ranks."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import IO, Any

from rankwise.launching import cause

#: A pipe that is said to be writable takes so much without keeping the writer waiting.
_PIECE_NBYTES = getattr(select, "PIPE_BUF", 512)
#: With so much unread, the ranks' output is not read either: they wait then, as they would for the reader.
_FULL_NBYTES = 1 << 20


class Sink:
    """One of the launcher's own streams.

    Args:
        stream: The stream, with or without a descriptor; None for one that is closed.
    """

    def __init__(self, stream: IO[str] | None) -> None:
        self.stream = stream
        self._waiting: deque[bytes] = deque()
        self._nbytes = 0
        self.descriptor, self._is_file, self._socket = _descriptor_of(stream)

    @property
    def waiting(self) -> bool:
        """Whether something is left to write."""
        return bool(self._waiting)

    @property
    def full(self) -> bool:
        """Whether so much is left that no more should come."""
        return self._nbytes >= _FULL_NBYTES

    def write(self, data: bytes) -> None:
        """Write as much as there is room for now, and keep the rest.

        Raises:
            OSError: The stream does not take any more.
        """
        if self.stream is None:
            return
        if self.descriptor < 0:
            binary: Any = getattr(self.stream, "buffer", None)
            if binary is None:
                self.stream.write(data.decode("utf-8", "replace"))
            else:
                binary.write(data)
            self.stream.flush()
            return
        self._waiting.append(data)
        self._nbytes += len(data)
        self.drain()

    def drain(self) -> None:
        """Write as much of what is left as there is room for now.

        Raises:
            OSError: The stream does not take any more.
        """
        while self._waiting and self._has_room():
            data = self._waiting[0]
            written = self._put(data if self._is_file else data[:_PIECE_NBYTES])
            self._nbytes -= written
            if written == len(data):
                self._waiting.popleft()
            else:
                self._waiting[0] = data[written:]

    def finish(self, patience_s: float | None) -> None:
        """Wait until all is written, or the reader has taken nothing for so long."""
        with suppress(OSError):
            left, since = self._nbytes, monotonic()
            while self._waiting and (patience_s is None or monotonic() < since + patience_s):
                select.select([], [self.descriptor], [], 0.1)
                self.drain()
                if self._nbytes < left:
                    left, since = self._nbytes, monotonic()

    def forget(self) -> None:
        """Give up what is left to write."""
        self._waiting.clear()
        self._nbytes = 0

    def give_up(self) -> None:
        """Let what is written from now on go nowhere."""
        self.forget()
        if self.descriptor >= 0:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.descriptor)
            os.close(nowhere)
            self._is_file, self._socket = True, None

    def _has_room(self) -> bool:
        return self._is_file or bool(select.select([], [self.descriptor], [], 0)[1])

    def _put(self, data: bytes) -> int:
        try:
            if self._socket is not None:
                return self._socket.send(data, socket.MSG_DONTWAIT)
            return os.write(self.descriptor, data)
        except BlockingIOError:
            return 0


def _descriptor_of(stream: IO[str] | None) -> tuple[int, bool, socket.socket | None]:
    """Return a stream's descriptor (-1 without), whether it is a file, and the socket that it may be."""
    try:
        if stream is None:
            return -1, False, None
        descriptor = stream.fileno()
        mode = os.fstat(descriptor).st_mode
    except (AttributeError, OSError, ValueError):
        return -1, False, None
    with suppress(OSError, ValueError):
        stream.flush()
    if not hasattr(select, "poll"):  # Windows, where one can wait for sockets alone: written to as a file is
        return descriptor, True, None
    is_device = stat.S_ISCHR(mode) and not os.isatty(descriptor)
    is_file = stat.S_ISREG(mode) or is_device
    return descriptor, is_file, socket.socket(fileno=os.dup(descriptor)) if stat.S_ISSOCK(mode) else None


# ------------------ a rank's log file: what happens to it must never happen to the rank


class LogFile:
    """A file that takes a stream of a rank, as long as the disk does, after what the rank's predecessor has written.

    Attributes:
        works: Whether all has been written so far.

    Args:
        path: The file.
        say: How to tell the user, once, that no more can be written.
    """

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path, self._say = path, say
        self._descriptor = -1
        self.works = True
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # opens: the log files of `rankwise run`
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            self._give_up(error)

    def write(self, data: bytes) -> None:
        """Append some bytes."""
        view = memoryview(data)
        try:
            while self.works and view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Close the file; again does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):  # some file systems tell only now; what is lost is lost
                os.close(descriptor)

    def _give_up(self, error: OSError) -> None:
        self.works = False
        self.close()
        self._say(f"rankwise: cannot write to {self._path}: {cause(error)}; the rank goes on without this log")
