"""What client, scheduler and workers tell each other about a gang: the ranks of one call of `run`."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import cloudpickle  # which Dask needs anyway

from rankwise.errors import PeerDiedError
from rankwise_network.secret import Secret


class Order(NamedTuple):
    """A gang: what is the same for all its ranks."""

    #: Its name: no two gangs have the same, on any cluster.
    token: str
    #: The rank of each worker, by its address.
    places: Mapping[str, int]
    secret: Secret
    backend: str
    timeout_s: float
    #: Who is told of its end; without that client there is no use in going on.
    client: str


class Address(NamedTuple):
    """Where the ranks meet."""

    host: str
    port: int


class Work(NamedTuple):
    """What the ranks are to do; and for each worker the keys of the chunks that it is to give its rank."""

    pickled: bytes
    chunks: Mapping[str, list[Any]] | None = None

    @classmethod
    def of(
        cls, function: Callable[..., Any], args: tuple[Any, ...], chunks: Mapping[str, list[Any]] | None = None
    ) -> Work:
        """Pickle a function as Dask does, so that it may have been typed in."""
        return cls(cloudpickle.dumps((function, args)), chunks)

    def function(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return the function and its arguments."""
        function, args = pickle.loads(self.pickled)
        return function, args


class Outcome(NamedTuple):
    """How a rank ended: with a value, or with an error and its traceback as text."""

    pickled: bytes
    traceback: str = ""
    #: Another rank that is gone, as far as the error tells.
    dead: int | None = None

    @property
    def failed(self) -> bool:
        """Whether the rank raised."""
        return bool(self.traceback)

    def load(self) -> Any:
        """Return the value, or the error."""
        return pickle.loads(self.pickled)


def success(value: Any) -> Outcome:
    """Return how a rank ended that has returned."""
    return Outcome(cloudpickle.dumps(value))


def failure(error: BaseException) -> Outcome:
    """Return how a rank ended that has raised; an error that cannot be pickled is told by its text."""
    text = "".join(traceback.format_exception(error))
    try:
        pickled = cloudpickle.dumps(error)
        if not isinstance(pickle.loads(pickled), BaseException):
            raise TypeError
    except Exception:
        pickled = pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return Outcome(pickled, text, error.rank if isinstance(error, PeerDiedError) else None)
