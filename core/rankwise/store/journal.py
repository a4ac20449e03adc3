"""The file behind a `FileStore`: a journal of changes that any number of processes read and extend.

A header of fixed size says where the valid records begin and end. A change is written behind the end first, and
becomes valid with the one small write that moves the end in the header: what a process leaves behind that is killed in
between is never read, and overwritten by the next. When most of the journal is outdated, the live values are written
once more and the rest is cut off, by the same rule.

Locks, which the kernel drops when their holder dies, sit on the first bytes. One is held for the time of an operation.
One is shared by all users as long as they live, so that a file that nobody else holds is known to be left from an
earlier run. Where the number of users is limited, each holds one seat out of so many.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Iterator, Mapping

from rankwise.basics.deadline import Deadline
from rankwise.errors import DistStoreError, DistTimeoutError

__all__ = ["Journal"]

_HEADER = struct.Struct("<16sQQQ")  # magic, generation, begin, end
_MAGIC = b"rankwise store 1"
_RECORD = struct.Struct("<Ii")  # length of the key, length of the value or -1 for a deletion
#: struct flock of the kernel: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi0q")

#: The bytes that stand for the locks; the seats follow.
_OPERATION_BYTE, _PRESENCE_BYTE, _FIRST_SEAT_BYTE = 0, 1, 2

_COMPACT_FROM_NBYTES = 256 << 10


class Journal:
    """One user's hold on a journal. Not for several threads at once."""

    def __init__(self, path: str, seats: int, timeout_s: float) -> None:
        """Open a journal, or begin one if there is none or nobody uses it any more.

        Args:
            path: The file.
            seats: How many users there may be at a time; 0 to take no seat.
            timeout_s: How long to wait for its lock.

        Raises:
            DistStoreError: The file cannot be opened, is something else than a journal, or has no seat left.
            DistTimeoutError: Its lock was held all the time.
        """
        self.path = path
        #: What has been read: up to where, and of which generation.
        self._seen, self._generation = 0, -1
        #: At which length it is worth while to see whether most of it is outdated.
        self._look_at = _COMPACT_FROM_NBYTES
        self._descriptor = -1
        #: That whoever is busy with it shall leave when he is done.
        self.leaving = False
        deadline = Deadline(timeout_s)
        try:
            self._open(deadline)
            self._join()
            self._sit(seats)
            self.unlock()
        except BaseException as error:
            self.abandon()
            # A time-out of ours is an OSError too.
            if isinstance(error, OSError) and not isinstance(error, DistTimeoutError):
                raise DistStoreError(f"FileStore: cannot use {path}: {error.strerror}") from error
            raise

    # ------------------------------------------------------------------ one operation

    def lock(self, timeout_s: float) -> None:
        """Keep the other users out.

        Raises:
            DistTimeoutError: One of them has kept us out all the time.
        """
        deadline, pause_s = Deadline(timeout_s), 0.0001
        while not self._try_lock(fcntl.F_WRLCK, _OPERATION_BYTE):
            if deadline.expired():
                raise DistTimeoutError(
                    f"FileStore: another process has kept the lock of {self.path} for {timeout_s:g} s; is it stopped?"
                )
            time.sleep(min(pause_s, deadline.remaining()))
            pause_s = min(2 * pause_s, 0.005)

    def unlock(self) -> None:
        """Let the other users in."""
        self._try_lock(fcntl.F_UNLCK, _OPERATION_BYTE)

    def read_into(self, values: dict[str, bytes]) -> None:
        """Bring `values` up to date; under the lock.

        Raises:
            DistStoreError: The file is not what it was.
        """
        if not self._is_current():
            raise DistStoreError(f"FileStore: {self.path} has been removed or replaced while it was in use")
        generation, begin, end = self._header()
        if generation != self._generation:
            values.clear()
            self._generation, self._seen = generation, begin
        if self._seen < end:
            for key, value in _records(self._read(self._seen, end - self._seen)):
                if value is None:
                    values.pop(key, None)
                else:
                    values[key] = value
            self._seen = end

    def write(self, changes: Mapping[str, bytes | None], values: Mapping[str, bytes]) -> None:
        """Write down changes, None for a deletion, that `values` has already; under the lock, after `read_into`."""
        generation, begin, end = self._header()
        # If it cannot be written, `values` is wrong and has to be read anew.
        self._generation = -1
        end = self._append(changes, end)
        self._set_header(generation, begin, end)
        self._generation, self._seen = generation, end
        if end - begin > self._look_at:
            live_nbytes = sum(_RECORD.size + len(key.encode()) + len(value) for key, value in values.items())
            if 4 * live_nbytes < end - begin:
                self._compact(values, generation, end)
            self._look_at = max(_COMPACT_FROM_NBYTES, 4 * live_nbytes)

    # ------------------------------------------------------------------ the end

    @property
    def closed(self) -> bool:
        """Whether the file has been closed."""
        return self._descriptor < 0

    def leave(self, timeout_s: float) -> None:
        """Close the file, if it is open; the last user removes it."""
        if self.closed:
            return
        try:
            self.lock(timeout_s)
            if self._try_lock(fcntl.F_WRLCK, _PRESENCE_BYTE) and self._is_current():
                os.unlink(self.path)
        except OSError:
            pass  # it will be known as left over by the next run
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file and nothing else, as in a forked child."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    # ------------------------------------------------------------------ opening

    def _open(self, deadline: Deadline) -> None:
        """Open and lock the file that the path names, even if it is removed meanwhile."""
        while True:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
            if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                raise DistStoreError(f"FileStore: {self.path} is not a regular file")
            self.lock(deadline.remaining())
            if self._is_current():
                return
            self.abandon()

    def _join(self) -> None:
        """Become one of the users of the locked file."""
        alone = self._try_lock(fcntl.F_WRLCK, _PRESENCE_BYTE)
        nbytes = os.fstat(self._descriptor).st_size
        if nbytes and os.pread(self._descriptor, len(_MAGIC), 0) != _MAGIC:
            raise DistStoreError(f"FileStore: {self.path} is not the file of a store; take another path")
        if alone:
            os.ftruncate(self._descriptor, 0)
            self._set_header(time.time_ns(), _HEADER.size, _HEADER.size)
        # Never refused: whoever would hold the byte alone holds the operation's lock, which is ours now.
        self._try_lock(fcntl.F_RDLCK, _PRESENCE_BYTE)

    def _sit(self, seats: int) -> None:
        if seats and not any(self._try_lock(fcntl.F_WRLCK, _FIRST_SEAT_BYTE + seat) for seat in range(seats)):
            raise DistStoreError(
                f"FileStore: {seats} processes use {self.path} already, as many as world_size says; give each job a "
                "file of its own"
            )

    def _is_current(self) -> bool:
        try:
            named = os.stat(self.path)
        except FileNotFoundError:
            return False
        mine = os.fstat(self._descriptor)
        return (named.st_ino, named.st_dev) == (mine.st_ino, mine.st_dev)

    # ------------------------------------------------------------------ bytes and locks

    def _append(self, changes: Mapping[str, bytes | None], end: int) -> int:
        data = b"".join(_record(key, value) for key, value in changes.items())
        self._write(end, data)
        return end + len(data)

    def _compact(self, values: Mapping[str, bytes], generation: int, end: int) -> None:
        # First behind everything, then, once that is valid, to the front, where nothing is valid any more.
        copy_end = self._append(values, end)
        self._set_header(generation + 1, end, copy_end)
        front_end = self._append(values, _HEADER.size)
        self._set_header(generation + 2, _HEADER.size, front_end)
        os.ftruncate(self._descriptor, front_end)
        self._generation, self._seen = generation + 2, front_end

    def _header(self) -> tuple[int, int, int]:
        data = self._read(0, _HEADER.size)
        magic, generation, begin, end = _HEADER.unpack(data)
        if magic != _MAGIC or not _HEADER.size <= begin <= end <= os.fstat(self._descriptor).st_size:
            raise DistStoreError(f"FileStore: somebody else has written to {self.path}")
        return generation, begin, end

    def _set_header(self, generation: int, begin: int, end: int) -> None:
        self._write(0, _HEADER.pack(_MAGIC, generation, begin, end))

    def _read(self, offset: int, nbytes: int) -> bytes:
        data = os.pread(self._descriptor, nbytes, offset)
        while len(data) < nbytes:
            more = os.pread(self._descriptor, nbytes - len(data), offset + len(data))
            if not more:
                raise DistStoreError(f"FileStore: {self.path} has been cut short")
            data += more
        return data

    def _write(self, offset: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, offset)
            view, offset = view[written:], offset + written

    def _try_lock(self, kind: int, byte: int) -> bool:
        # Locks of the open file, not of the process: closing another descriptor of the file does not drop them,
        # and two stores of one process exclude each other.
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True


def _record(key: str, value: bytes | None) -> bytes:
    name = key.encode()
    if value is None:
        return _RECORD.pack(len(name), -1) + name
    return _RECORD.pack(len(name), len(value)) + name + value


def _records(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    offset = 0
    while offset < len(data):
        key_nbytes, value_nbytes = _RECORD.unpack_from(data, offset)
        offset += _RECORD.size
        key = data[offset : offset + key_nbytes].decode()
        offset += key_nbytes
        yield key, None if value_nbytes < 0 else data[offset : offset + value_nbytes]
        offset += max(0, value_nbytes)
