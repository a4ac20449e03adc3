"""Where the ranks of a job meet: `env://`, `tcp://`, `file://`, and the schemes of third parties."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.tracebacks import shortened
from rankwise.errors import DistError, DistNetworkError, DistTimeoutError
from rankwise.meeting.launcher_env import from_environment, job_name
from rankwise.store import FileStore, Store, TCPStore

if TYPE_CHECKING:
    from urllib.parse import SplitResult

__all__ = ["register_rendezvous_handler", "rendezvous"]

#: What a handler yields: the store, this process's rank, and the number of ranks.
Meeting = tuple[Store, int, int]
Handler = Callable[..., Iterator[Meeting]]

_DEFAULT_TIMEOUT_S = 1800.0
#: Where nearly all jobs meet; it needs no looking at.
_FROM_ENVIRONMENT = "env://"
#: How long to look who has taken rank 0's port.
_WHO_IS_THERE_S = 5.0

_handlers: dict[str, Handler] = {}


def register_rendezvous_handler(scheme: str, handler: Handler) -> None:
    """Have URLs of a scheme handled by `handler(url, timeout=..., **kwargs)`, a generator.

    It yields the store, this process's rank and the number of ranks. A rank or world size that is given to `rendezvous`
    comes in the URL's query, as in `mine://somewhere?rank=0&world_size=2`.

    Args:
        scheme: What the URLs begin with, as "mine" for `mine://`.
        handler: The generator.

    Raises:
        ValueError: The scheme has a handler already, or can be none.

    Examples:
        >>> def handler(url, timeout):
        ...     yield dist.HashStore(), 0, 1
        >>> dist.register_rendezvous_handler("mine", handler)
        >>> next(dist.rendezvous("mine://somewhere"))
        (HashStore(), 0, 1)
    """
    with shortened:
        if not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
            raise ValueError(f"register_rendezvous_handler: {scheme!r} cannot be the scheme of a URL")
        if scheme in _handlers:
            raise ValueError(f"register_rendezvous_handler: {scheme}:// has a handler already")
        _handlers[scheme] = handler


def rendezvous(
    url: str, rank: int = -1, world_size: int = -1, timeout: Timeout = _DEFAULT_TIMEOUT_S, **kwargs: Any
) -> Iterator[Meeting]:
    """Yield the store at a URL, this process's rank, and the number of ranks.

    Args:
        url: `env://`, `tcp://host:port`, `file:///path`, or one of a registered scheme.
        rank: This process's rank, if neither the URL's query nor, for `env://`, the environment tells.
        world_size: The number of ranks, likewise.
        timeout: How long to wait for the store, and later for its keys: a `timedelta` or seconds.
        **kwargs: For the handler of a registered scheme.

    Raises:
        ValueError: The URL is malformed or of an unknown scheme, or something is missing or given twice.
        DistError: The store cannot be reached, or not be served.

    Yields:
        The store, the rank, and the number of ranks.

    Examples:
        >>> meeting = dist.rendezvous("tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> store, rank, size = next(meeting)
        >>> store.set("key", "value")
        >>> store.close()
    """
    with shortened:
        if not isinstance(url, str):
            raise TypeError(f"rendezvous: a URL is a str, not {url!r}")
        if url == _FROM_ENVIRONMENT:
            return _of_environment(rank, world_size, timeout)
        parts = _split(url)
        if parts.scheme not in _handlers:
            known = ", ".join(f"{scheme}://" for scheme in sorted(_handlers))
            _refuse(url, f"no such scheme; there are {known}")
        given = dict(_pairs(parts))
        for name, value in (("rank", rank), ("world_size", world_size)):
            if value != -1:
                if name in given:
                    _refuse(url, f"{name} is given twice, here and as the argument {value}")
                parts = parts._replace(query=f"{parts.query}&{name}={value}".lstrip("&"))
        whole = f"{parts.scheme}://{parts.netloc}{parts.path}"
        return _handlers[parts.scheme](f"{whole}?{parts.query}" if parts.query else whole, timeout=timeout, **kwargs)


# ---------------------------------------------------------------------- the three schemes


def _env(url: str, timeout: Timeout) -> Iterator[Meeting]:
    parts = _split(url)
    if parts.netloc or parts.path.strip("/"):
        _refuse(url, "the rest is read from the environment; only a query may follow")
    query = _query(url, parts)
    return _of_environment(query.get("rank", -1), query.get("world_size", -1), timeout)


def _of_environment(rank: int, world_size: int, timeout: Timeout) -> Iterator[Meeting]:
    place = from_environment(rank, world_size)
    try:
        store = _meet(place.master_addr, place.master_port, place.rank, seconds(timeout), place.is_served)
    except (DistNetworkError, DistTimeoutError) as error:
        origin = place.origin or f"MASTER_ADDR={place.master_addr}, MASTER_PORT={place.master_port}"
        raise type(error)(f"{error} ({origin})") from error.__cause__
    yield store, place.rank, place.world_size


def _tcp(url: str, timeout: Timeout) -> Iterator[Meeting]:
    parts = _split(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        _refuse(url, str(error))
    if not host or port is None or parts.path.strip("/") or "@" in parts.netloc:
        _refuse(url, "it must read like tcp://host:port, with an IPv6 address in brackets")
    rank, world_size = _place(url, parts)
    if port == 0 and world_size > 1:
        _refuse(url, f"port 0 is for a world of one; {world_size} ranks have to know the port")
    yield _meet(host, port, rank, seconds(timeout)), rank, world_size


def _file(url: str, timeout: Timeout) -> Iterator[Meeting]:
    parts = _split(url)
    if parts.netloc not in ("", "localhost") or not parts.path.strip("/"):
        _refuse(url, "it must read like file:///path, with three slashes")
    rank, world_size = _place(url, parts)
    yield FileStore(parts.path, world_size, timeout, job=job_name()), rank, world_size


for _scheme, _handler in (("env", _env), ("tcp", _tcp), ("file", _file)):
    register_rendezvous_handler(_scheme, _handler)


def _meet(host: str, port: int, rank: int, timeout_s: float, is_served: bool = False) -> Store:
    """Open the store that rank 0 serves, or another process already; nobody waits for the others here."""
    if is_served:
        store: Store = TCPStore(host, port, timeout=timeout_s, wait_for_server=False)
        store.is_lent = True
        return store
    deadline = Deadline(timeout_s)
    try:
        return TCPStore(host, port, is_master=rank == 0, timeout=timeout_s)
    except DistTimeoutError as error:
        raise DistTimeoutError(f"{error}, where rank 0 is to serve the store") from None
    except DistNetworkError as error:
        if getattr(error.__cause__, "errno", None) != errno.EADDRINUSE:
            raise
        taken = error
    try:
        # If another rank 0 has the port, the two must meet: then each can be told who the other is.
        store = TCPStore(host, port, timeout=min(_WHO_IS_THERE_S, deadline.remaining()))
    except DistError:
        raise taken from taken.__cause__
    store.set_timeout(timeout_s)
    return store


# ---------------------------------------------------------------------- URLs


def _split(url: str) -> SplitResult:
    from urllib.parse import urlsplit  # only now: most jobs meet where the environment says

    try:
        parts = urlsplit(url)
    except ValueError as error:
        _refuse(url, str(error))
    if "://" not in url or parts.fragment:
        _refuse(url, "it must read like scheme://..., and have no fragment (#)")
    return parts


def _pairs(parts: SplitResult) -> list[tuple[str, str]]:
    from urllib.parse import parse_qsl

    return parse_qsl(parts.query, keep_blank_values=True)


def _place(url: str, parts: SplitResult) -> tuple[int, int]:
    query = _query(url, parts)
    for name in ("rank", "world_size"):
        if name not in query:
            _refuse(url, f"{name} is missing; give it as an argument, or in the URL as ?{name}=N")
    rank, world_size = query["rank"], query["world_size"]
    if not 0 <= rank < world_size:
        _refuse(url, f"rank {rank} is not in a world of {world_size}")
    return rank, world_size


def _query(url: str, parts: SplitResult) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in _pairs(parts):
        if name not in ("rank", "world_size"):
            _refuse(url, f"{name!r} means nothing here; the query may tell rank and world_size")
        if name in found:
            _refuse(url, f"{name} is given twice")
        if not re.fullmatch("[0-9]{1,9}", value):
            _refuse(url, f"{name} must be a number, not {value!r}")
        found[name] = int(value)
    return found


def _refuse(url: str, why: str) -> NoReturn:
    raise ValueError(f"rendezvous at {url[:200]!r}: {why}") from None
