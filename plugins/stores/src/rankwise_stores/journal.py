"""The file behind a `FileStore`: a journal of changes that any number of processes read and extend.

A header of fixed size says where the valid records begin and end. A change is written behind the end first, and
becomes valid with the one small write that moves the end in the header: what a process leaves behind that is killed in
between is never read, and overwritten by the next. When most of the journal is outdated, the live values are written
once more and the rest is cut off, by the same rule. The header and each record have a tag, see `records`.

Locks, which the kernel drops when their holder dies, sit on the first bytes. One is held for the time of an operation.
One is shared by all users as long as they live, so that a file that nobody else holds is known to be left from an
earlier run. Where the number of users is limited, each holds one seat out of so many.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from rankwise.errors import DistStoreError, DistTimeoutError
from rankwise.stores import Deadline, cause
from rankwise_stores import place as byte_locks
from rankwise_stores.place import open_private
from rankwise_stores.records import HEADER_NBYTES, MAGIC, Header, Seal

#: The bytes that stand for the locks; the seats follow.
_OPERATION_BYTE, _PRESENCE_BYTE, _FIRST_SEAT_BYTE = 0, 1, 2

_COMPACT_FROM_NBYTES = 256 << 10
#: What a record takes beside its key and value.
_RECORD_NBYTES = 24


class Journal:
    """One user's hold on a journal. Only one thread may use it at a time."""

    def __init__(self, path: str, seal: Seal, seats: int, timeout_s: float) -> None:
        """Open a journal, or begin one if there is none or nobody uses it any more.

        Args:
            path: The file, as `whole_path` has it.
            seal: What writes and checks its records.
            seats: How many users there may be at a time; 0 to take no seat.
            timeout_s: How long to wait for its lock.

        Raises:
            DistStoreError: The file cannot be opened, is open to others, is something else than a journal or that of
                another job, or has no seat left.
            DistTimeoutError: Its lock was held all the time.
        """
        self.path, self._seal = path, seal
        #: The header up to which all has been read; None if it has to be read anew.
        self._seen: Header | None = None
        #: At which length it is worth while to see whether most of it is outdated.
        self._look_at = _COMPACT_FROM_NBYTES
        self._descriptor = -1
        #: That a thread that is busy with it shall leave when done.
        self.leaving = False
        if not byte_locks.AVAILABLE:
            raise DistStoreError("FileStore needs locks of open files, which Linux alone has; use TCPStore or tcp://")
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
                raise DistStoreError(f"FileStore: cannot use {path}: {cause(error)}") from error
            raise

    # ------------------------------------------------------------------ one operation

    def lock(self, timeout_s: float) -> None:
        """Keep the other users out.

        Raises:
            DistTimeoutError: One of them has kept us out all the time.
        """
        deadline, pause_s = Deadline(timeout_s), 0.0001
        while not byte_locks.take(self._descriptor, _OPERATION_BYTE):
            if deadline.expired():
                raise DistTimeoutError(
                    f"FileStore: another process has kept the lock of {self.path} for {timeout_s:g} s; is it stopped?"
                )
            time.sleep(min(pause_s, deadline.remaining()))
            pause_s = min(2 * pause_s, 0.005)

    def unlock(self) -> None:
        """Let the other users in."""
        byte_locks.release(self._descriptor, _OPERATION_BYTE)

    def read_into(self, values: dict[str, bytes]) -> None:
        """Bring `values` up to date; under the lock.

        Raises:
            DistStoreError: The file is not what it was.
        """
        if not self._is_current():
            raise DistStoreError(f"FileStore: {self.path} has been removed or replaced while it was in use")
        header, seen, self._seen = self._header(), self._seen, None
        if seen is None or header.generation != seen.generation:
            values.clear()
            seen = header._replace(end=header.begin)
        if header.end > seen.end:
            data = self._read(seen.end, header.end - seen.end)
            for key, value in self._seal.unpack(data, header, seen.end):
                if value is None:
                    values.pop(key, None)
                else:
                    values[key] = value
        self._seen = header

    def forget(self) -> None:
        """Read everything again the next time: what was read has been changed and not written."""
        self._seen = None

    def write(self, changes: Mapping[str, bytes | None], values: Mapping[str, bytes]) -> None:
        """Write down changes, None for a deletion, that `values` has already; under the lock, after `read_into`."""
        header = self._header()
        # If it cannot be written, `values` is wrong and has to be read anew.
        self._seen = None
        header = self._append(changes, header)
        self._set_header(header)
        self._seen = header
        if header.end - header.begin > self._look_at:
            live_nbytes = sum(_RECORD_NBYTES + len(key.encode()) + len(value) for key, value in values.items())
            if 4 * live_nbytes < header.end - header.begin:
                self._compact(values, header)
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
            if byte_locks.take(self._descriptor, _PRESENCE_BYTE) and self._is_current():
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
            self._descriptor = open_private(self.path)
            self.lock(deadline.remaining())
            if self._is_current():
                return
            self.abandon()

    def _join(self) -> None:
        """Become one of the users of the locked file."""
        alone = byte_locks.take(self._descriptor, _PRESENCE_BYTE)
        nbytes = os.fstat(self._descriptor).st_size
        if nbytes and os.pread(self._descriptor, len(MAGIC), 0) != MAGIC:
            raise DistStoreError(f"FileStore: {self.path} is not the file of a store; take another path")
        if alone:
            os.ftruncate(self._descriptor, 0)
            self._set_header(Header.of_new_file())
        else:
            self._header()  # is it ours?
        # Never refused: a process that holds the byte alone holds the operation's lock, which is ours now.
        byte_locks.share(self._descriptor, _PRESENCE_BYTE)

    def _sit(self, seats: int) -> None:
        if seats and not any(byte_locks.take(self._descriptor, _FIRST_SEAT_BYTE + seat) for seat in range(seats)):
            raise DistStoreError(
                f"FileStore: {seats} processes use {self.path} already, as many as world_size says; give each job a "
                "file of its own"
            )

    def _is_current(self) -> bool:
        try:
            named = os.lstat(self.path)
        except FileNotFoundError:
            return False
        mine = os.fstat(self._descriptor)
        return (named.st_ino, named.st_dev) == (mine.st_ino, mine.st_dev)

    # ------------------------------------------------------------------ bytes and locks

    def _append(self, changes: Mapping[str, bytes | None], header: Header) -> Header:
        """Write records behind the end, and return the header that makes them valid."""
        data = self._seal.pack(changes, header, header.end)
        self._write(header.end, data)
        return header._replace(end=header.end + len(data))

    def _compact(self, values: Mapping[str, bytes], header: Header) -> None:
        # First behind everything, then, once that is valid, to the front, where nothing is valid any more.
        for begin in (header.end, HEADER_NBYTES):
            header = self._append(values, header._replace(generation=header.generation + 1, begin=begin, end=begin))
            self._set_header(header)
        os.ftruncate(self._descriptor, header.end)
        self._seen = header

    def _header(self) -> Header:
        header = self._seal.unpack_header(self._read(0, HEADER_NBYTES))
        if not HEADER_NBYTES <= header.begin <= header.end <= os.fstat(self._descriptor).st_size:
            raise DistStoreError(f"FileStore: {self.path} has been cut short")
        if self._seen is not None and not _follows(header, self._seen):
            raise DistStoreError(f"FileStore: somebody else has put an earlier content back into {self.path}")
        return header

    def _set_header(self, header: Header) -> None:
        self._write(0, self._seal.pack_header(header))

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


def _follows(header: Header, seen: Header) -> bool:
    """Tell whether a header can have come after another one."""
    return header.mark == seen.mark and (header.generation, header.end) >= (seen.generation, seen.end)
