"""MPI's errors in the error tree of rankwise: the one place that knows both."""

from __future__ import annotations

from functools import cache

from mpi4py import MPI

from rankwise.errors import DistBackendError, DistError, GroupAbortedError, PeerDiedError, UnsupportedOperationError

_MISUSE = "report this: the backend should not have asked for that"
_LIMIT = "the library cannot take so much at once"
_FOREIGN = "this belongs to a part of MPI that the backend does not use; did another thread of the program?"
_LIBRARY = "see the library's own output"
_SIZES = "the ranks do not agree on a size; RANKWISE_DEBUG=detail names the one that differs"

#: For every error class of MPI, the error that it becomes, and what to do or think.
ERRORS: dict[str, tuple[type[DistError], str]] = {
    **dict.fromkeys(("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_PROC_ABORTED"), (PeerDiedError, "")),
    "ERR_REVOKED": (GroupAbortedError, "another rank has given the group up"),
    "ERR_UNSUPPORTED_OPERATION": (UnsupportedOperationError, "use another MPI library, or another backend"),
    "ERR_TRUNCATE": (DistBackendError, _SIZES),
    **dict.fromkeys(
        ("ERR_COUNT", "ERR_NO_MEM", "ERR_NO_SPACE", "ERR_QUOTA", "ERR_VALUE_TOO_LARGE"), (DistBackendError, _LIMIT)
    ),
    **dict.fromkeys(
        (
            *("ERR_ARG", "ERR_BUFFER", "ERR_COMM", "ERR_DIMS", "ERR_DISP", "ERR_GROUP", "ERR_OP", "ERR_RANK"),
            *("ERR_REQUEST", "ERR_ROOT", "ERR_TAG", "ERR_TOPOLOGY", "ERR_TYPE", "ERR_SIZE", "ERR_ERRHANDLER"),
        ),
        (DistBackendError, _MISUSE),
    ),
    **dict.fromkeys(
        ("ERR_ABI", "ERR_INTERN", "ERR_OTHER", "ERR_UNKNOWN", "ERR_IN_STATUS", "ERR_PENDING"),
        (DistBackendError, _LIBRARY),
    ),
    **dict.fromkeys(
        (
            *("ERR_ACCESS", "ERR_AMODE", "ERR_ASSERT", "ERR_BAD_FILE", "ERR_BASE", "ERR_CONVERSION"),
            *("ERR_DUP_DATAREP", "ERR_FILE", "ERR_FILE_EXISTS", "ERR_FILE_IN_USE", "ERR_INFO", "ERR_INFO_KEY"),
            *("ERR_INFO_NOKEY", "ERR_INFO_VALUE", "ERR_IO", "ERR_KEYVAL", "ERR_LOCKTYPE", "ERR_NAME"),
            *("ERR_NOT_SAME", "ERR_NO_SUCH_FILE", "ERR_PORT", "ERR_READ_ONLY", "ERR_RMA_ATTACH"),
            *("ERR_RMA_CONFLICT", "ERR_RMA_FLAVOR", "ERR_RMA_RANGE", "ERR_RMA_SHARED", "ERR_RMA_SYNC"),
            *("ERR_SERVICE", "ERR_SESSION", "ERR_SPAWN", "ERR_UNSUPPORTED_DATAREP", "ERR_WIN"),
        ),
        (DistBackendError, _FOREIGN),
    ),
}


def may_be_a_death(error: MPI.Exception) -> bool:
    """Tell whether an exception may come of a rank's end.

    So it is where another rank has ended all that is pending on the communicator, and where the library does not know
    what is wrong: Open MPI says "other" if a process ends in the middle of an operation.
    """
    return error_class_name(error.Get_error_class()) in ("ERR_REVOKED", "ERR_OTHER", "ERR_INTERN", "ERR_UNKNOWN")


def translate(error: MPI.Exception, where: str, died: tuple[int, str] | None = None) -> DistError:
    """Return what an exception of mpi4py is in our error tree.

    Args:
        error: The exception.
        where: The operation, group and rank, for the message.
        died: Global rank and host of the peer that is known to be gone, if one is.
    """
    name = error_class_name(error.Get_error_class())
    kind, advice = ERRORS.get(name, (DistBackendError, _LIBRARY))
    said = " ".join(error.Get_error_string().split())
    if kind is PeerDiedError or (died is not None and may_be_a_death(error)):
        return PeerDiedError(*(died or (-1, "an unknown host")), f"noticed in {where}: {said}")
    return kind(f"{where}: {name}: {said}" + (f"; {advice}" if advice else ""))


def error_class_name(code: int) -> str:
    """Return the name that the standard gives an error class."""
    return _names().get(code, f"error class {code}")


@cache
def _names() -> dict[int, str]:
    found = {getattr(MPI, name): name for name in dir(MPI) if name.startswith("ERR_") and name != "ERR_LASTCODE"}
    # Classes that a library does not know share one code with ERR_UNKNOWN or with each other; the standard's win.
    found[MPI.ERR_UNKNOWN] = "ERR_UNKNOWN"
    return found
