"""What callers may give, judged before anything is asked of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from distributed import Client

from rankwise.backends import Timeout, seconds, whole_number


class Terms(NamedTuple):
    """How a gang is to run: what `run` says of its arguments of these names."""

    backend: str
    timeout_s: float
    retries: int
    placement_s: float


def judged(function: Any, backend: Any, timeout: Timeout, retries: Any = 0, placement_timeout: Timeout = 0.0) -> Terms:
    """Return the terms of a gang.

    Raises:
        TypeError: An argument is not what it must be.
        ValueError: A number is negative, or none.
    """
    if not callable(function):
        raise TypeError(f"function must be callable, not {function!r:.100}")
    if not isinstance(backend, str):
        raise TypeError(f"backend must be a string, not {backend!r:.100}")
    placement_s = seconds(placement_timeout, "placement_timeout")
    return Terms(backend, seconds(timeout), whole_number(retries, "retries"), placement_s)


def client_of(client: Any) -> Client:
    """Return a client that can be asked for something.

    Raises:
        TypeError: It is none, or an asynchronous one.
        ValueError: It is closed.
    """
    if not isinstance(client, Client) or client.asynchronous:
        raise TypeError(f"rankwise_dask: give a Client that is not asynchronous, not {client!r:.100}")
    if client.status != "running":
        raise ValueError(f"rankwise_dask: the client is {client.status}")
    return client


def wanted(workers: Any) -> int | list[Any] | None:
    """Return how many workers are wanted, or which; None for all.

    Raises:
        TypeError: It is neither.
        ValueError: There are none, or one is named twice.
    """
    if workers is None:
        return None
    if isinstance(workers, (str, bytes)) or not isinstance(workers, Sequence):
        return whole_number(workers, "workers", 1)
    named = list(workers)
    if not named:
        raise ValueError("workers must be at least one")
    if len(set(map(str, named))) < len(named):
        raise ValueError("workers: one is named twice")
    return named
