"""The URLs of servers in which ranks meet: `redis://`, `rediss://`, `redis+unix://`, `etcd://` and `etcds://`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from rankwise_stores.urls import query, refuse, split, without_password

if TYPE_CHECKING:
    from urllib.parse import SplitResult

#: What lies on a server under no other name.
_PREFIX = "rankwise"
_TLS = ("ca", "cert", "key")
_MORE = {"redis": ("prefix",), "rediss": ("prefix", *_TLS), "redis+unix": ("prefix", "db"), "etcd": (), "etcds": _TLS}


class RedisPlace(NamedTuple):
    """Where a Redis is.

    Attributes:
        shown: The URL as messages show it.
        host: The host; None if it is at a Unix socket.
        port: The port.
        path: The Unix socket.
        db: The number of the database.
        user: Who asks.
        password: How this user proves it.
        prefix: What the names of all keys begin with.
        tls: Files by their purpose, `ca`, `cert` and `key`; None for no TLS.
    """

    shown: str
    host: str | None
    port: int
    path: str | None
    db: int
    user: str | None
    password: str | None
    prefix: str
    tls: Mapping[str, str] | None


class EtcdPlace(NamedTuple):
    """Where an etcd is; the fields are like those of `RedisPlace`."""

    shown: str
    members: tuple[tuple[str, int], ...]
    user: str | None
    password: str | None
    prefix: str
    tls: Mapping[str, str] | None


def words_of(url: str) -> dict[str, str]:
    """Return what the query of a server's URL says.

    Raises:
        ValueError: It says what nobody understands.
    """
    return query(url, parts := split(url), _MORE.get(parts.scheme, ()))


def redis_place(url: str) -> RedisPlace:
    """Return where a URL of Redis leads.

    Raises:
        ValueError: It makes no sense.
    """
    parts, words = split(url), words_of(url)
    if parts.scheme not in ("redis", "rediss", "redis+unix"):
        refuse(url, "a RedisStore is at redis://, rediss:// or redis+unix://")
    user, password = _credentials(parts)
    host: str | None = None
    port, path, db = 6379, None, words.get("db", "")
    if parts.scheme == "redis+unix":
        path = parts.path
        if parts.hostname or not path.strip("/"):
            refuse(url, "it must read like redis+unix:///path, with three slashes")
    else:
        ((host, port),) = _hosts(url, parts.netloc, 6379)
        db = parts.path.strip("/")
    if db and not (db.isascii() and db.isdigit() and len(db) < 10):
        refuse(url, f"the database must be a number, not {db!r}")
    tls = {name: words[name] for name in _TLS if name in words} if parts.scheme == "rediss" else None
    prefix = _prefix(url, words.get("prefix", _PREFIX))
    return RedisPlace(_shown(url, prefix), host, port, path, int(db or 0), user, password, prefix, tls)


def etcd_place(url: str) -> EtcdPlace:
    """Return where a URL of etcd leads.

    Raises:
        ValueError: It makes no sense.
    """
    parts, words = split(url), words_of(url)
    if parts.scheme not in ("etcd", "etcds"):
        refuse(url, "an EtcdStore is at etcd:// or etcds://")
    user, password = _credentials(parts)
    members = _hosts(url, parts.netloc, 2379)
    tls = {name: words[name] for name in _TLS if name in words} if parts.scheme == "etcds" else None
    prefix = _prefix(url, parts.path.strip("/") or _PREFIX)
    return EtcdPlace(_shown(url, ""), members, user, password, prefix, tls)


def within(url: str, name: str) -> str:
    """Return the URL of another place on the same server, whose prefix has a name after it.

    Raises:
        ValueError: The URL makes no sense.
    """
    parts, words = split(url), words_of(url)
    place, mark, query_text = url.partition("?")
    if parts.scheme in ("etcd", "etcds"):
        place = place.rstrip("/") if parts.path.strip("/") else f"{place.rstrip('/')}/{_PREFIX}"
        return f"{place}/{name}{mark}{query_text}"
    words["prefix"] = f"{words.get('prefix', _PREFIX)}.{name}"
    return f"{place}?" + "&".join(f"{key}={value}" for key, value in words.items())


def _credentials(parts: SplitResult) -> tuple[str | None, str | None]:
    from urllib.parse import unquote

    before, at, _ = parts.netloc.rpartition("@")
    user, colon, password = before.partition(":")
    return unquote(user) or None if at else None, unquote(password) if colon else None


def _hosts(url: str, netloc: str, port: int) -> tuple[tuple[str, int], ...]:
    """Return the hosts and ports that stand in a URL, one or, for etcd, several with commas between them."""
    found = []
    for each in netloc.rpartition("@")[2].split(","):
        parts = split(f"//{each}")
        try:
            host, its_port = parts.hostname, parts.port
        except ValueError as error:
            refuse(url, str(error))
        if not host or its_port == 0:
            refuse(url, "it must name a host, and the port if it is another one than usual, as in //host:port")
        found.append((host, port if its_port is None else its_port))
    if len(found) > 1 and not url.lower().startswith("etcd"):
        refuse(url, "it must name one host")
    return tuple(found)


def _prefix(url: str, prefix: str) -> str:
    from urllib.parse import unquote

    name = unquote(prefix)
    if not name or not name.isprintable() or len(name) > 200:
        refuse(url, "the prefix must be a name of 1 to 200 characters")
    return name


def _shown(url: str, prefix: str) -> str:
    """Return a URL as messages show it: without password, rank and number of ranks."""
    shown = without_password(url).partition("?")[0]
    return f"{shown}?prefix={prefix}" if prefix else shown
