"""URLs at which ranks meet: their parts, their queries, and how they are told without a password."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_PLACE = ("rank", "world_size")


def split(url: str) -> SplitResult:
    """Return the parts of a URL.

    Raises:
        ValueError: It is malformed.
    """
    from urllib.parse import urlsplit  # only now: most jobs meet where the environment says

    try:
        return urlsplit(url)
    except ValueError as error:
        refuse(url, str(error))


def place(url: str, words: Mapping[str, str]) -> tuple[int, int]:
    """Return the rank and the number of ranks that a URL's query tells.

    Raises:
        ValueError: One is missing, or they make no sense.
    """
    found: dict[str, int] = {}
    for name in _PLACE:
        if name not in words:
            refuse(url, f"{name} is missing; give it as an argument, or in the URL as ?{name}=N")
        found[name] = number(url, name, words[name])
    rank, world_size = found["rank"], found["world_size"]
    if not 0 <= rank < world_size:
        refuse(url, f"rank {rank} is not in a world of {world_size}")
    return rank, world_size


def query(url: str, parts: SplitResult, more: Collection[str] = ()) -> dict[str, str]:
    """Return what a URL's query says: rank, world size, and what else its scheme understands.

    Raises:
        ValueError: It says something else, or something twice, or no number where one is needed.
    """
    from urllib.parse import parse_qsl

    found: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in (*_PLACE, *more):
            known = ", ".join(more)
            refuse(url, f"{name!r} means nothing here; the query may tell {known and known + ', '}rank and world_size")
        if name in found:
            refuse(url, f"{name} is given twice")
        if name in _PLACE:
            number(url, name, value)
        found[name] = value
    return found


def number(url: str, name: str, value: str) -> int:
    """Return the number that a word of a query is."""
    if not re.fullmatch("[0-9]{1,9}", value):
        refuse(url, f"{name} must be a number, not {value!r}")
    return int(value)


def without_password(url: str) -> str:
    """Return a URL as messages show it: with dots for a password, and cut if it is long."""
    scheme, mark, rest = url.partition("://")
    user, at, behind = rest.rpartition("@")  # a password may have any character, so it ends at the last @
    name, colon, _ = user.partition(":")
    shown = f"{name}:..." if colon else user
    return re.sub(r"(password=)[^&]*", r"\1...", f"{scheme}{mark}{shown}{at}{behind}")[:200]


def refuse(url: str, why: str) -> NoReturn:
    """Raise the error of a URL that makes no sense."""
    raise ValueError(f"rendezvous at {without_password(url)!r}: {why}") from None
