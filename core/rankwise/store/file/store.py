"""`FileStore`: a store for processes that share a file system."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import ParamSpec, TypeVar

from rankwise.basics.deadline import Timeout
from rankwise.basics.systems import cause, keep_standard
from rankwise.basics.tracebacks import shortened
from rankwise.errors import DistStoreError, DistTimeoutError
from rankwise.network.secret import given_or_loaded
from rankwise.store import operations
from rankwise.store.base import DEFAULT_TIMEOUT_S, GRACE_S, Operation, Store
from rankwise.store.file.journal import Journal
from rankwise.store.file.place import whole_path
from rankwise.store.file.records import Seal
from rankwise.store.memory import Table
from rankwise.store.primitives import to_amount

__all__ = ["FileStore"]

_R = TypeVar("_R")
_P = ParamSpec("_P")


class FileStore(Store):
    """A store that processes share by naming the same file.

    A file that no living process uses is left from an earlier run: its content is not seen. The last to close the store
    removes the file.

    It must be a file, in a folder, that nobody but this user can write, read, or replace. With a job secret
    only processes that know it can write what the others take for a value; a user who can read the file reads the
    values all the same.

    Args:
        file_name: The file; it is made if there is none.
        world_size: How many processes may use it at a time, so that a second job with the same file is refused; -1 for
            any number.
        timeout: How long to wait for its lock, and, from then on, for keys: a `timedelta` or seconds.
        secret: The job secret, if it is not the one of the environment; groups that meet in the store have it too.
        job: A name that this job has and another does not, where there is no secret to tell them apart.

    Raises:
        DistStoreError: It cannot be opened, is open to others, is something else than a store, is that of another job,
            or is in use by `world_size` others.

    Examples:
        >>> with dist.FileStore(folder / "store") as store:
        ...     print(store.add("count", 1))
        1
    """

    def __init__(
        self,
        file_name: str | os.PathLike[str],
        world_size: int = -1,
        timeout: Timeout = DEFAULT_TIMEOUT_S,
        *,
        secret: bytes | None = None,
        job: str = "",
    ) -> None:
        with shortened:
            keep_standard()
            self.set_timeout(timeout)
            self._path = whole_path(file_name)
            self.secret = given_or_loaded(secret, "FileStore")
            self._seal = Seal(self._path, self.secret, job)
            self._enter(max(0, to_amount(world_size)))

    @property
    def path(self) -> str:
        """The file, as an absolute path without symbolic links."""
        return self._path

    def peek(self, key: str) -> bytes | None:
        return self._run(operations.peek, self._timeout_s, key)

    def swap(self, key: str, expected: bytes | None, desired: bytes | None) -> bytes | None:
        return self._run(operations.swap, self._timeout_s, key, expected, desired)

    def scan(self) -> Sequence[str]:
        return self._run(operations.scan, self._timeout_s)

    def clone(self) -> FileStore:
        self._check_open(operations.check)
        twin = FileStore.__new__(FileStore)
        twin._path, twin._seal, twin._timeout_s = self._path, self._seal, self._timeout_s
        twin._enter(seats=0)
        return twin

    def close(self) -> None:
        super().close()
        self._finalizer()

    def __repr__(self) -> str:
        return f"FileStore({self._path!r})"

    # ------------------------------------------------------------------ how operations run

    def _enter(self, seats: int) -> None:
        """Become a user of the file."""
        self._pid, self._lock, self._table = os.getpid(), threading.RLock(), Table()
        self._journal = Journal(self._path, self._seal, seats, self._timeout_s)
        self._finalizer = weakref.finalize(self, _leave, self._lock, self._journal, self._pid)

    def _run(self, operation: Operation[_P, _R], limit_s: float, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        self._check_open(operation)
        if self._pid != os.getpid():
            self._reopen()
        with _exclusively(self._lock, self._journal, self._table, limit_s):
            return operation(self._table, *args, **kwargs)

    def _reopen(self) -> None:
        """Become a user of our own in a forked child: locks are shared with the parent, so they keep nobody out."""
        self._finalizer.detach()
        self._journal.abandon()
        self._enter(seats=0)


@contextlib.contextmanager
def _exclusively(lock: threading.RLock, journal: Journal, table: Table, limit_s: float) -> Iterator[None]:
    """Read what the others have written, let the caller work on the table, and write down what has changed.

    What is raised, by an interrupt between any two steps too, leaves the locks free and the file right.
    """
    try:
        if not lock.acquire(timeout=limit_s):
            raise DistTimeoutError(f"FileStore: another thread was busy with {journal.path} for {limit_s:g} s")
        if journal.closed:
            raise DistStoreError(f"FileStore({journal.path!r}): the store has been closed")
        journal.lock(limit_s)
        journal.read_into(table.values)
        yield
        if table.changed:
            journal.write({key: table.values.get(key) for key in table.changed}, table.values)
            table.changed.clear()
        _let_go(lock, journal, table)
    except BaseException as error:
        _let_go(lock, journal, table)
        if isinstance(error, OSError) and not isinstance(error, DistTimeoutError):  # a time-out is one too
            raise DistStoreError(f"FileStore: cannot use {journal.path}: {cause(error)}") from error
        raise


def _let_go(lock: threading.RLock, journal: Journal, table: Table) -> None:
    """Let the others at the file, if this thread keeps them out; again does nothing."""
    if not lock.acquire(blocking=False):
        return
    if table.changed:  # what an operation has changed that has failed
        journal.forget()
        table.changed.clear()
    if journal.leaving:
        journal.leave(GRACE_S)
    elif not journal.closed:
        journal.unlock()
    with contextlib.suppress(RuntimeError):  # it is free
        while True:
            lock.release()


def _leave(lock: threading.RLock, journal: Journal, pid: int) -> None:
    """Close the file; in a forked child, leave it to the parent."""
    if pid != os.getpid():
        journal.abandon()
        return
    # Should another thread be at it, it leaves in our place.
    journal.leaving = True
    if lock.acquire(timeout=GRACE_S):
        journal.leave(GRACE_S)
        lock.release()
