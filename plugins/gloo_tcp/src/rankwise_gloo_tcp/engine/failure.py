"""The failure of one group on one rank."""

from __future__ import annotations

from collections.abc import Callable

from rankwise.errors import DistError
from rankwise_gloo_tcp import state
from rankwise_gloo_tcp.protocol.message import Message


class FailureState(state.FailureState):
    """The failure of one group on one rank. All but `tell` is called with the engine's lock held.

    What is pending when a failure is noticed ends a little later, when the communicator has found out what error all
    ranks raise.

    Args:
        on_failure: Called once, without the lock, when the group has failed.

    Attributes:
        failure: The error that all ranks raise, once it is known.
        failing: Whether the group is about to fail: what all ranks raise is being found out.
        stranded: Requests that end when it does.
    """

    __slots__ = ("_on_failure", "_unreported", "failure", "stranded")

    def __init__(self, on_failure: Callable[[DistError], object]) -> None:
        self.failure: DistError | None = None
        self.failing = False
        self.stranded: list[Message] = []
        self._on_failure = on_failure
        self._unreported: DistError | None = None

    @property
    def closed(self) -> bool:
        """Whether the group accepts nothing new, as it could not succeed."""
        return self.failing or self.failure is not None

    @property
    def has_news(self) -> bool:
        """Whether the communicator is to be told of a failure."""
        return self._unreported is not None

    def fail(self, error: DistError) -> None:
        """Fail the whole group."""
        if not self.closed:
            self.failing = True
            self._unreported = error

    def fail_request(self, request: Message, error: DistError) -> None:
        """Fail the group because of what a request needed, and end the request with it."""
        self.strand(request)
        if self.failure is None:
            self.fail(error)

    def strand(self, request: Message) -> None:
        """End a request with the group: nobody else knows of it. The lock is held."""
        if self.failure is not None:
            request.end(self.failure)
        else:
            self.stranded.append(request)

    def tell(self) -> None:
        """Tell the communicator of a failure, without the lock."""
        if self._unreported is not None:
            error, self._unreported = self._unreported, None
            self._on_failure(error)

    def detach(self) -> None:
        """Let go of the communicator, which holds this."""
        self._on_failure = _unheard


def _unheard(error: DistError) -> None:
    """Take a failure that comes after the end."""
