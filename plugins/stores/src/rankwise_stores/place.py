"""Where the file of a `FileStore` may lie: where nobody but its user can write it, replace it, or have prepared it."""

from __future__ import annotations

import errno
import os
import stat
import struct

from rankwise.errors import DistStoreError

_ADVICE = "name a file in a folder that is yours alone, as `mkdir -m 700 FOLDER` in your home makes one"
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def whole_path(path: str | os.PathLike[str]) -> str:
    """Return a path from the root, on which no folder is a symbolic link that somebody could turn elsewhere."""
    folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
    return os.path.join(os.path.realpath(folder), name)


def open_private(path: str) -> int:
    """Open a file that only this user can read and write, or make it, and return its descriptor.

    Args:
        path: What `whole_path` has returned.

    Raises:
        DistStoreError: Somebody else owns the file or can read it, or can put another in its place.
        OSError: It cannot be opened.
    """
    _check_folders(os.path.dirname(path))
    if os.path.islink(path):
        raise _refusal(f"FileStore: {path} is a symbolic link, which is not followed; {_ADVICE}")
    flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW
    # opens: the file of a `FileStore`
    # reached by: users who may read its folder
    # guarded by: mode 0600; another owner, wider permissions, links, and folders where others may write are
    # refused; each record has a tag
    # proved by: tests/security/test_file_store.py
    descriptor = os.open(path, flags, 0o600)
    try:
        _check_file(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_file(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise DistStoreError(f"FileStore: {path} is not a regular file")
    if status.st_uid != os.geteuid():
        raise _refusal(
            f"FileStore: {path} belongs to user {status.st_uid}, not to this one ({os.geteuid()}); {_ADVICE}"
        )
    if status.st_mode & 0o077:
        # Taking the rights away now would not help: a process that has opened it keeps it open.
        mode = stat.S_IMODE(status.st_mode)
        raise _refusal(
            f"FileStore: others may read or write {path} (mode {mode:03o}); remove it, and it is made "
            "anew with mode 600"
        )
    if status.st_nlink > 1:
        raise _refusal(f"FileStore: {path} is a file that has another name too (a hard link); {_ADVICE}")


def _check_folders(folder: str) -> None:
    """See that nobody else can put another file, or another folder, in the place of those on the way.

    Where the sticky bit is set, as on /tmp, everyone may add names but nobody can take away those of others.
    """
    # The owner of the root can do anything anyway; in a namespace of users it may not be shown as user 0.
    trusted = {0, os.geteuid(), os.stat("/").st_uid}
    while True:
        status = os.lstat(folder)
        mode = status.st_mode
        if status.st_uid not in trusted:
            raise _refusal(f"FileStore: the folder {folder} belongs to user {status.st_uid}; {_ADVICE}")
        if mode & _OTHERS_MAY_WRITE and not mode & stat.S_ISVTX:
            raise _refusal(
                f"FileStore: others may write in the folder {folder} (mode {stat.S_IMODE(mode):03o}), and so put "
                f"another file in the store's place; {_ADVICE}"
            )
        if folder == os.path.dirname(folder):
            return
        folder = os.path.dirname(folder)


def _refusal(text: str) -> DistStoreError:
    """Make an error that says by its cause that trying again will not help."""
    error = DistStoreError(text)
    error.__cause__ = PermissionError(errno.EACCES, "others could write or read it")
    return error


# ------------------ locks on single bytes of an open file, which the kernel drops when their holder dies
#
# They belong to the open file, not to the process: closing another descriptor of the file does not drop them, and two
# stores of one process exclude each other. Linux alone offers them.

try:
    from fcntl import F_OFD_SETLK, F_RDLCK, F_UNLCK, F_WRLCK, fcntl
except ImportError:
    AVAILABLE = False
else:
    AVAILABLE = True


#: struct flock of the kernel: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi0q")


def take(descriptor: int, byte: int) -> bool:
    """Lock a byte for this open file alone; tell whether nobody else held it."""
    return _try(descriptor, F_WRLCK, byte)


def share(descriptor: int, byte: int) -> bool:
    """Lock a byte together with others who share it; tell whether nobody held it alone."""
    return _try(descriptor, F_RDLCK, byte)


def release(descriptor: int, byte: int) -> None:
    """Give a byte back."""
    _try(descriptor, F_UNLCK, byte)


def _try(descriptor: int, kind: int, byte: int) -> bool:
    try:
        fcntl(descriptor, F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True
