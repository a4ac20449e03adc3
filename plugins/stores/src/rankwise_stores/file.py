"""`FileStore`: what programs see of a shared file."""

from __future__ import annotations

import os
from typing import ParamSpec, TypeVar

from rankwise.stores import DEFAULT_TIMEOUT_S, Operation, TableStore, Timeout, operations, shortened, to_amount
from rankwise_network.secret import given_or_loaded
from rankwise_stores.shared_file import SharedFile

_R = TypeVar("_R")
_P = ParamSpec("_P")


class FileStore(TableStore):
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

    ends_with_its_users = True
    has_address = True

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
            self.set_timeout(timeout)
            self.secret = given_or_loaded(secret, "FileStore")
            seats = max(0, to_amount(world_size))
            self._file = SharedFile(file_name, self.secret, job, seats, self._timeout_s)

    @property
    def path(self) -> str:
        """The file, as an absolute path without symbolic links."""
        return self._file.path

    def clone(self) -> FileStore:
        self._check_open(operations.check)
        twin = self.view(self._timeout_s)
        twin._file = self._file.again(self._timeout_s)
        return twin

    def close(self) -> None:
        super().close()
        self._file.close()

    def _run(self, operation: Operation[_P, _R], limit_s: float, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        self._check_open(operation)
        return self._file.run(operation, limit_s, *args, **kwargs)

    def __repr__(self) -> str:
        return f"FileStore({self.path!r})"
