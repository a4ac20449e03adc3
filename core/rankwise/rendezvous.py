"""Where the ranks of a job meet: `env://`, `tcp://`, `file://`, and schemes of third parties."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from rankwise.deadline import Timeout
from rankwise.launcher_env import from_environment
from rankwise.store import FileStore, Store, TCPStore
from rankwise.store.base import DEFAULT_TIMEOUT_S

__all__ = ["register_rendezvous_handler", "rendezvous"]

#: What a handler yields: the store, this process's rank, and the number of ranks.
Meeting = tuple[Store, int, int]
Handler = Callable[..., Iterator[Meeting]]

_handlers: dict[str, Handler] = {}


def register_rendezvous_handler(scheme: str, handler: Handler) -> None:
    """Register `handler(url, rank=..., world_size=..., timeout=...)`, a generator of meetings, for URLs of a scheme.

    Raises:
        ValueError: The scheme has a handler already.
    """
    if scheme in _handlers:
        raise ValueError(f"rendezvous scheme {scheme!r} is registered already")
    _handlers[scheme] = handler


def rendezvous(
    url: str, rank: int = -1, world_size: int = -1, timeout: Timeout = DEFAULT_TIMEOUT_S, **kwargs: Any
) -> Iterator[Meeting]:
    """Yield the store at a URL, this process's rank, and the number of ranks.

    Rank and world size come from the arguments or from the URL's query (`?rank=0&world_size=4`), for `env://` from
    the environment too; not from two of them.

    Raises:
        ValueError: The URL is malformed, of an unknown scheme, or something is missing.
    """
    if not isinstance(url, str):
        raise TypeError(f"a rendezvous URL is a string, not {url!r}")
    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:
        raise ValueError(f"{url!r} is no URL: {error}") from error
    if scheme not in _handlers:
        raise ValueError(f"{url!r} has no scheme that is known: {', '.join(f'{s}://' for s in sorted(_handlers))}")
    return _handlers[scheme](url, rank=rank, world_size=world_size, timeout=timeout, **kwargs)


def _tcp(url: str, rank: int, world_size: int, timeout: Timeout) -> Iterator[Meeting]:
    parts = urlsplit(url)
    rank, world_size = _numbers(url, parts, rank, world_size)
    try:
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url!r}: {error}") from error
    if not parts.hostname or port is None:
        raise ValueError(f"{url!r} must read like tcp://host:port (an IPv6 address in brackets)")
    yield _tcp_store(parts.hostname, port, rank, world_size, timeout), rank, world_size


def _file(url: str, rank: int, world_size: int, timeout: Timeout) -> Iterator[Meeting]:
    parts = urlsplit(url)
    rank, world_size = _numbers(url, parts, rank, world_size)
    if parts.netloc or not parts.path.strip("/"):
        raise ValueError(f"{url!r} must read like file:///path, with three slashes")
    yield FileStore(parts.path, world_size, timeout), rank, world_size


def _env(url: str, rank: int, world_size: int, timeout: Timeout) -> Iterator[Meeting]:
    query = _query(url, urlsplit(url))
    here = from_environment(query.get("rank", rank), query.get("world_size", world_size))
    store = _tcp_store(here.master_addr, here.master_port, here.rank, here.world_size, timeout)
    yield store, here.rank, here.world_size


for _scheme, _handler in (("tcp", _tcp), ("file", _file), ("env", _env)):
    register_rendezvous_handler(_scheme, _handler)


def _tcp_store(host: str, port: int, rank: int, world_size: int, timeout: Timeout) -> Store:
    if port == 0 and world_size > 1:
        raise ValueError("the ranks of a world cannot meet at port 0: give the port that rank 0 is to serve")
    return TCPStore(host, port, world_size, is_master=rank == 0, timeout=timeout, wait_for_workers=False)


def _numbers(url: str, parts: SplitResult, rank: int, world_size: int) -> tuple[int, int]:
    query = _query(url, parts)
    for name, given in (("rank", rank), ("world_size", world_size)):
        if name in query and given != -1:
            raise ValueError(f"{name} is given twice: in {url!r}, and as the argument {given}")
    rank, world_size = query.get("rank", rank), query.get("world_size", world_size)
    if world_size < 1 or not 0 <= rank < world_size:
        raise ValueError(f"{url!r}: give rank and world_size, as arguments or in the URL (got {rank} and {world_size})")
    return rank, world_size


def _query(url: str, parts: SplitResult) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, values in parse_qs(parts.query, keep_blank_values=True).items():
        if name not in ("rank", "world_size"):
            raise ValueError(f"{url!r} has an unknown part {name!r}; known are rank and world_size")
        try:
            found[name] = int(values[-1])
        except ValueError as error:
            raise ValueError(f"{url!r}: {name} must be a number, not {values[-1]!r}") from error
    return found
