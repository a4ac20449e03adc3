"""All errors of rankwise, in one tree.

    RuntimeError
    └── DistError                       base of all of them
        ├── DistBackendError            a backend's library reported a failure
        ├── DistNetworkError            a connection could not be made, or broke
        │   └── ProtocolError           received bytes do not follow the protocol
        │       └── CodecError          ... inside an encoded object
        ├── DistStoreError              a store refused or lost a request
        │   └── QueueEmptyError         a queue had nothing to pop
        ├── DistTimeoutError            a deadline passed (also a TimeoutError)
        ├── RendezvousError             the ranks that met do not form one world
        ├── PeerDiedError               another rank is gone: rank, host, cause
        │   └── PeerUnreachableError    ... or may live, but nothing is heard of it
        ├── CollectiveMismatchError     the ranks did not all make the same call
        ├── GroupAbortedError           the group was aborted; its calls fail immediately
        ├── BackendNotFoundError        no such backend is installed (also a ValueError)
        ├── BackendUnavailableError     it is installed but cannot run here
        ├── UnsupportedOperationError   the capability table says no (also a NotImplementedError)
        ├── PluginError                 a plugin is broken, clashing, or written for another version
        ├── ForkedProcessError          a group was used in a child of the process that made it
        └── ProcessException            a process of `spawn` failed
            ├── ProcessRaisedException  ... by an exception, with its traceback
            └── ProcessExitedException  ... with an exit code, or by a signal

Mistakes in arguments stay `TypeError` and `ValueError`. This module imports nothing of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = [
    "BackendNotFoundError",
    "BackendUnavailableError",
    "CodecError",
    "CollectiveMismatchError",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "DistTimeoutError",
    "ForkedProcessError",
    "GroupAbortedError",
    "PeerDiedError",
    "PeerUnreachableError",
    "PluginError",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "ProtocolError",
    "QueueEmptyError",
    "RendezvousError",
    "UnsupportedOperationError",
]


class DistError(RuntimeError):
    """Base class of all errors of rankwise. They can be pickled and copied, with all their attributes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (type(self), self.args, self.__dict__)


class DistBackendError(DistError):
    """The library behind a backend reported a failure."""


class DistNetworkError(DistError):
    """A connection could not be made, or broke.

    Attributes:
        rank: The global rank at the other end, if it is a rank; that rank need not have died.
        is_silent: Whether nothing was answered any more, rather than the connection ended or refused.
    """

    rank: int | None = None
    is_silent: bool = False


class ProtocolError(DistNetworkError):
    """Received bytes do not follow the protocol."""


class CodecError(ProtocolError):
    """An encoded object is malformed, too large, too deep, or of a type that the codec does not know."""


class DistStoreError(DistError):
    """A store refused or lost a request."""


class QueueEmptyError(DistStoreError):
    """A queue in a store had nothing to pop."""


class DistTimeoutError(DistError, TimeoutError):
    """A deadline passed; the message names the ranks that were waited for, and contains "timed out".

    Attributes:
        waited_for: Their global ranks, as far as they are known.
    """

    waited_for: tuple[int, ...] = ()
    if not TYPE_CHECKING:  # RuntimeError's, which is found first, refuses to make what is an OSError too
        __new__ = TimeoutError.__new__

    def __init__(self, message: str = "") -> None:
        super().__init__(message if "timed out" in message else f"timed out: {message}".rstrip(": "))


class RendezvousError(DistError):
    """The processes that met do not form one world: duplicate ranks, or disagreement about its shape."""


class PeerDiedError(DistError):
    """Another rank of the group is gone.

    Attributes:
        rank: Its global rank.
        host: Where it ran.
        cause: What is known of its end, such as "killed by SIGKILL".
    """

    _state = "gone"

    def __init__(self, rank: int, host: str, cause: str) -> None:
        super().__init__(rank, host, cause)
        self.rank = rank
        self.host = host
        self.cause = cause

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host} is {self._state}: {self.cause}"


class PeerUnreachableError(PeerDiedError):
    """Another rank has been out of reach for too long, and may live; one goes on without it as without a dead one."""

    _state = "unreachable"


class CollectiveMismatchError(DistError):
    """The ranks of a group did not all make the same call; every rank gets this same error.

    Attributes:
        odd_ranks: The global ranks that differ from the majority (all of them where there is none).
    """

    def __init__(self, message: str, odd_ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message, odd_ranks)
        self.odd_ranks = odd_ranks

    def __str__(self) -> str:
        return str(self.args[0])


class GroupAbortedError(DistError):
    """The group was aborted, by a call or after a failure; its operations fail immediately."""


class BackendNotFoundError(DistError, ValueError):
    """No backend of that name is installed; the message lists those that are.

    Attributes:
        remedy: The command that installs it, where that is known.
    """

    def __init__(self, message: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


class BackendUnavailableError(DistError):
    """The backend is installed but cannot run on this machine; the message says why."""


class UnsupportedOperationError(DistError, NotImplementedError):
    """The capability table says that this backend does not do this."""


class PluginError(DistError):
    """A plugin cannot be imported, clashes with another, or was written for another API version.

    Attributes:
        remedy: How to change that, if known.
    """

    def __init__(self, message: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


class ForkedProcessError(DistError):
    """A group was used in a forked child of the process that made it."""


class ProcessException(DistError):
    """A spawned process failed.

    Attributes:
        error_index: Which one, from 0.
        error_pid: Its process id.
    """

    def __init__(self, message: str, error_index: int, error_pid: int) -> None:
        super().__init__(message, error_index, error_pid)
        self.error_index, self.error_pid = error_index, error_pid

    def __str__(self) -> str:
        return str(self.args[0])


class ProcessRaisedException(ProcessException):
    """A spawned process ended by an exception; the message holds its traceback."""


class ProcessExitedException(ProcessException):
    """A spawned process ended with an exit code or by a signal.

    Attributes:
        exit_code: As `multiprocessing` has it: negative for a signal.
        signal_name: The signal's name, if one ended it.
    """

    def __init__(
        self, message: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(message, error_index, error_pid)
        self.args = (message, error_index, error_pid, exit_code, signal_name)
        self.exit_code, self.signal_name = exit_code, signal_name


def _made_again(kind: type[DistError], args: tuple[Any, ...], attributes: dict[str, Any]) -> DistError:
    """Return an error like one that was pickled or copied, without what its class does to arguments once more."""
    error: DistError = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error
