"""Where ranks meet on servers that somebody else runs: `redis://`, `rediss://`, `redis+unix://`, `etcd://`, `etcds://`.

Each is an entry point of the group `rankwise.rendezvous`, as those of `rankwise_stores.schemes` are.
"""

from __future__ import annotations

from collections.abc import Iterator

from rankwise.stores import Store, Timeout
from rankwise_network.launcher_env import rank_and_size, told_of_a_job
from rankwise_stores.server_urls import words_of
from rankwise_stores.urls import place

Meeting = tuple[Store, int, int]


def redis(url: str, timeout: Timeout) -> Iterator[Meeting]:
    """Meet in a Redis."""
    rank, world_size = _place(url)
    from rankwise_stores.redis_store import RedisStore  # only now: its package is an extra

    yield RedisStore(url, world_size, timeout, rank=rank), rank, world_size


def etcd(url: str, timeout: Timeout) -> Iterator[Meeting]:
    """Meet in an etcd."""
    rank, world_size = _place(url)
    from rankwise_stores.etcd_store import EtcdStore  # only now: most jobs meet elsewhere

    yield EtcdStore(url, world_size, timeout, rank=rank), rank, world_size


def is_served(url: str) -> bool:
    """Tell whether a URL leads to a server that somebody else runs."""
    return url.partition("://")[0].lower() in ("redis", "rediss", "redis+unix", "etcd", "etcds")


def opened(url: str, timeout: Timeout) -> Store:
    """Open a store there for a user who is no rank, or does not take its seat.

    Raises:
        ValueError: The URL makes no sense.
        DistError: The server cannot be reached, or refuses.
    """
    if url.lower().startswith("etcd"):
        from rankwise_stores.etcd_store import EtcdStore

        return EtcdStore(url, timeout=timeout)
    from rankwise_stores.redis_store import RedisStore

    return RedisStore(url, timeout=timeout)


def _place(url: str) -> tuple[int, int]:
    """Return rank and world size as the URL tells, or else the launcher."""
    words = words_of(url)
    if "rank" in words and "world_size" in words:
        return place(url, words)
    if not told_of_a_job():
        return place(url, words)  # which says what is missing
    return rank_and_size(int(words.get("rank", -1)), int(words.get("world_size", -1)))
