"""`FileStore`: a store in a file that all ranks can reach.

The file is a log of the operations that changed something; each user replays it into a table of its own. A lock on
the file makes each operation one step. Whoever opens a file whose users are all dead begins it anew, so a file that
an earlier run has left behind is never joined; the last user to leave removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import secrets
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from rankwise.deadline import Deadline, Timeout
from rankwise.errors import DistStoreError, ForkedProcessError
from rankwise.store.base import DEFAULT_TIMEOUT_S, Store
from rankwise.store.table import CHANGES, Table, Wait

__all__ = ["FileStore"]

_MAGIC = b"rankwise file store 1\n"
_HEAD = struct.Struct(f"<{len(_MAGIC)}s16s")
_RECORD = struct.Struct("<II")  # length and checksum of what follows
_LONGEST_PAUSE_S = 0.02


class _User(NamedTuple):
    """One opening of the file; `born` tells a process from a later one of the same number."""

    host: str
    pid: int
    born: str
    token: str


class FileStore(Store):
    """A store in the file `path`.

    Args:
        path: The file; it is made if need be.
        world_size: How many users will open it. The last to close removes the file, once all have come; if not
            given, once nobody has it open.
        timeout: How long to wait for keys.
    """

    def __init__(
        self, path: str | os.PathLike[str], world_size: int = -1, timeout: Timeout = DEFAULT_TIMEOUT_S
    ) -> None:
        super().__init__(timeout)
        self.path = os.fspath(path)
        self._world_size = world_size
        self._me = _User(platform.node(), os.getpid(), _born(os.getpid()), secrets.token_hex(8))
        self._lock = threading.Lock()
        self._file: int | None = None
        self._begin_anew(b"")
        self._open()

    def __repr__(self) -> str:
        return f"FileStore({self.path!r})"

    def clone(self) -> Store:
        """Open the file once more."""
        return FileStore(self.path, -1, self.timeout)

    def close(self) -> None:
        """Leave the file, and remove it if nobody else is coming or there."""
        if self._file is None or os.getpid() != self._me.pid:
            return
        with contextlib.suppress(DistStoreError, OSError), self._locked():
            self._change("leave", list(self._me))
            if not self._users and self._come >= max(1, self._world_size):
                os.unlink(self.path)
        os.close(self._file)
        self._file = None

    def _call(self, op: str, *args: Any, timeout_s: float = 0.0) -> Any:
        deadline, pause_s = Deadline(timeout_s), 0.001
        while True:
            try:
                with self._locked():
                    return self._change(op, *args) if op in CHANGES else self._table.run(op, args)
            except Wait:
                if deadline.expired():
                    raise
            time.sleep(min(pause_s, deadline.remaining()))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    # ------------------------------------------------------------------ the file

    def _open(self) -> None:
        while True:
            try:
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise DistStoreError(f"{self!r} cannot be opened: {error.strerror}") from error
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                if self._is_at_path():
                    self._enter()
                    return
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)  # the last user has removed it between our opening and our locking it

    def _enter(self) -> None:
        head = self._pread(0, _HEAD.size)
        if len(head) == _HEAD.size and head.startswith(_MAGIC):
            self._begin_anew(head)
            self._replay()
        elif head:
            raise DistStoreError(f"{self!r} is some other file, which is left as it is")
        if not head or (self._users and not any(_lives(user) for user in self._users)):
            head = _HEAD.pack(_MAGIC, secrets.token_bytes(16))
            os.ftruncate(self._fd(), 0)
            os.pwrite(self._fd(), head, 0)
            self._begin_anew(head)
        self._change("enter", list(self._me))

    def _is_at_path(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._fd()), os.stat(self.path))
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        if os.getpid() != self._me.pid:
            raise ForkedProcessError(f"{self!r} was opened by the process that this one was forked from; open it anew")
        with self._lock:
            fcntl.flock(self._fd(), fcntl.LOCK_EX)
            try:
                if self._pread(0, _HEAD.size) != self._head:
                    raise DistStoreError(f"{self!r} was begun anew by another run")
                self._replay()
                yield
            finally:
                fcntl.flock(self._fd(), fcntl.LOCK_UN)

    def _fd(self) -> int:
        if self._file is None:
            raise DistStoreError(f"{self!r} has been closed")
        return self._file

    def _pread(self, offset: int, count: int) -> bytes:
        pieces = []
        while count and (piece := os.pread(self._fd(), count, offset)):
            pieces.append(piece)
            offset, count = offset + len(piece), count - len(piece)
        return b"".join(pieces)

    # ------------------------------------------------------------------ the log

    def _begin_anew(self, head: bytes) -> None:
        self._head = head
        self._table = Table()
        self._users: set[_User] = set()
        self._come = 0
        self._end = len(head)

    def _change(self, op: str, *args: Any) -> Any:
        """Do a change, and write it down for the others; one that is refused is not written."""
        import msgpack

        answer = self._apply(op, args)
        body: bytes = msgpack.packb([op, *args])
        record = _RECORD.pack(len(body), zlib.crc32(body)) + body
        # What stands behind the last whole record was written by someone who died while writing.
        os.ftruncate(self._fd(), self._end)
        if os.pwrite(self._fd(), record, self._end) != len(record):
            raise DistStoreError(f"{self!r} cannot grow: is the disk full?")
        self._end += len(record)
        return answer

    def _replay(self) -> None:
        """Take in what others have written since the last time."""
        import msgpack

        size = os.fstat(self._fd()).st_size
        data = self._pread(self._end, size - self._end) if size > self._end else b""
        begin = 0
        while len(data) >= begin + _RECORD.size:
            length, checksum = _RECORD.unpack_from(data, begin)
            body = data[begin + _RECORD.size : begin + _RECORD.size + length]
            if len(body) < length or zlib.crc32(body) != checksum:
                break
            op, *args = msgpack.unpackb(body)
            with contextlib.suppress(Wait, DistStoreError):
                self._apply(op, tuple(args))
            begin += _RECORD.size + length
        self._end += begin

    def _apply(self, op: str, args: tuple[Any, ...]) -> Any:
        if op == "enter":
            self._users.add(_User(*args[0]))
            self._come += 1
            return None
        if op == "leave":
            self._users.discard(_User(*args[0]))
            return None
        return self._table.run(op, args)


def _lives(user: _User) -> bool:
    """Tell whether a user may still be there; of other hosts nothing is known."""
    return user.host != platform.node() or (user.born != "" and _born(user.pid) == user.born)


def _born(pid: int) -> str:
    """Return when a process was started, in the kernel's words, or nothing if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        pass
    try:  # no /proc here: be content with whether it exists
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "unknown"
