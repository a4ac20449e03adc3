"""Where the ranks of a job meet: URLs, whose schemes are entry points or registered by the program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from rankwise.basics import entry_points
from rankwise.basics.deadline import Timeout
from rankwise.basics.tracebacks import shortened
from rankwise.errors import PluginError
from rankwise.store.base import Store

#: What a handler yields: the store, this process's rank, and the number of ranks.
Meeting = tuple[Store, int, int]
Handler = Callable[..., Iterator[Meeting]]

#: An entry point's name is a scheme, and what it stands for a handler.
ENTRY_POINT_GROUP = "rankwise.rendezvous"
#: Where processes meet that were told nothing else: where a launcher says, or each by itself where there is none.
LAUNCHER = "launcher://"

_DEFAULT_TIMEOUT_S = 1800.0
#: What `rankwise-stores` brings: for a word of advice where it is not installed.
_WELL_KNOWN = ("env", "etcd", "etcds", "file", "launcher", "redis", "redis+unix", "rediss", "tcp")

_handlers: dict[str, Handler] = {}


def register_rendezvous_handler(scheme: str, handler: Handler) -> None:
    """Have URLs of a scheme handled by `handler(url, timeout=..., **kwargs)`, a generator.

    It yields the store, this process's rank and the number of ranks. A rank or world size that is given to `rendezvous`
    comes in the URL's query, as in `mine://somewhere?rank=0&world_size=2`. A distribution that brings a scheme names
    its handler as an entry point of the group `rankwise.rendezvous` instead.

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
        if load_scheme(scheme):
            raise ValueError(f"register_rendezvous_handler: {scheme}:// has a handler already")
        _handlers[scheme] = handler


def rendezvous(
    url: str, rank: int = -1, world_size: int = -1, timeout: Timeout = _DEFAULT_TIMEOUT_S, **kwargs: Any
) -> Iterator[Meeting]:
    """Yield the store at a URL, this process's rank, and the number of ranks.

    Args:
        url: `env://`, `tcp://host:port`, `file:///path`, `redis://host:port/db?prefix=NAME`,
            `etcd://host:port/prefix`, or one of another scheme that is installed or registered.
        rank: This process's rank, if neither the URL's query nor, for `env://`, the environment tells.
        world_size: The number of ranks, likewise.
        timeout: How long to wait for the store, and later for its keys: a `timedelta` or seconds.
        **kwargs: For the handler of a registered scheme.

    Raises:
        ValueError: The URL is malformed or of an unknown scheme, or something is missing or given twice.
        PluginError: `rankwise-stores`, which brings `env://`, `tcp://` and `file://`, is not installed.
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
        scheme, mark, rest = url.partition("://")
        if not mark or "#" in rest:
            _refuse(url, "it must read like scheme://..., and have no fragment (#)")
        if not load_scheme(scheme.lower()):
            _refuse_scheme(url, scheme.lower())
        given = {pair.partition("=")[0] for pair in rest.partition("?")[2].split("&")}
        for name, value in (("rank", rank), ("world_size", world_size)):
            if value != -1:
                if name in given:
                    _refuse(url, f"{name} is given twice, here and as the argument {value}")
                rest += f"{'&' if '?' in rest else '?'}{name}={value}"
        return _handlers[scheme.lower()](f"{scheme}://{rest}", timeout=timeout, **kwargs)


def load_scheme(scheme: str) -> bool:
    """Load the handler of a scheme that is an entry point, and tell whether there is one."""
    if scheme not in _handlers:
        found = entry_points.named(ENTRY_POINT_GROUP, scheme)
        if len(found) > 1:
            raise PluginError(f"{scheme}:// is claimed by {' and '.join(found.values())}; uninstall all but one")
        if not found:
            return False
        _handlers[scheme] = entry_points.load(*found)
    return True


def _refuse_scheme(url: str, scheme: str) -> NoReturn:
    if scheme in _WELL_KNOWN:
        raise entry_points.not_installed("rankwise-stores") from None
    schemes = {*_handlers, *(point.name for point in entry_points.installed(ENTRY_POINT_GROUP))} - {"launcher"}
    _refuse(url, f"no such scheme; there are {', '.join(f'{name}://' for name in sorted(schemes))}")


def _refuse(url: str, why: str) -> NoReturn:
    shown = re.sub(r"(://[^:/?]*:).*@", r"\1...@", url)  # a password is nobody's to read
    raise ValueError(f"rendezvous at {shown[:200]!r}: {why}") from None
