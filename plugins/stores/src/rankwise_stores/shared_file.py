"""The file behind a `FileStore` as one process uses it: under a lock, with what the others have written read first."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import ParamSpec, TypeVar

from rankwise.errors import DistStoreError, DistTimeoutError
from rankwise.stores import GRACE_S, Operation, Table, cause, keep_standard
from rankwise_network.secret import Secret
from rankwise_stores.journal import Journal
from rankwise_stores.place import whole_path
from rankwise_stores.records import Seal

_R = TypeVar("_R")
_P = ParamSpec("_P")


class SharedFile:
    """A `rankwise_stores.file.SharedFile`.

    Args:
        file_name: The file; it is made if there is none.
        secret: The job secret, if there is one.
        job: A name that this job has and another does not.
        seats: How many processes may use it at a time; 0 for any number.
        timeout_s: How long to wait for its lock.
    """

    def __init__(
        self, file_name: str | os.PathLike[str], secret: Secret | None, job: str, seats: int, timeout_s: float
    ) -> None:
        keep_standard()
        self.path = whole_path(file_name)
        self._seal = Seal(self.path, secret, job)
        self._enter(seats, timeout_s)

    def again(self, timeout_s: float) -> SharedFile:
        """Return another hold on the same file."""
        twin = SharedFile.__new__(SharedFile)
        twin.path, twin._seal = self.path, self._seal
        twin._enter(0, timeout_s)
        return twin

    def run(self, operation: Operation[_P, _R], limit_s: float, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Carry out an operation while no other process does one, or fail within `limit_s`."""
        if self._pid != os.getpid():
            self._reopen(limit_s)
        with _exclusively(self._lock, self._journal, self._table, limit_s):
            return operation(self._table, *args, **kwargs)

    def close(self) -> None:
        """Leave the file; again does nothing."""
        self._finalizer()

    def _enter(self, seats: int, timeout_s: float) -> None:
        """Become a user of the file."""
        self._pid, self._lock, self._table = os.getpid(), threading.RLock(), Table()
        self._journal = Journal(self.path, self._seal, seats, timeout_s)
        self._finalizer = weakref.finalize(self, _leave, self._lock, self._journal, self._pid)

    def _reopen(self, timeout_s: float) -> None:
        """Become a user of our own in a forked child: locks are shared with the parent, so they keep nobody out."""
        self._finalizer.detach()
        self._journal.abandon()
        self._enter(0, timeout_s)


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
