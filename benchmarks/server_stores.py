"""How long a store on a server takes: `set`, `get`, and a `get` that waits until another process has set the key.

`python benchmarks/server_stores.py redis://127.0.0.1:6379/0 etcd://127.0.0.1:2379/bench`
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from multiprocessing import get_context

from rankwise.store import Store
from rankwise_stores import EtcdStore, RedisStore


def opened(url: str) -> Store:
    """Return the store at a URL."""
    return EtcdStore(url, timeout=60) if url.startswith("etcd") else RedisStore(url, timeout=60)


def set_later(url: str, turns: int) -> None:
    """Set each key a moment after the other process has begun to wait for it, with the time."""
    with opened(url) as store:
        for turn in range(turns):
            store.get(f"ready {turn}")
            time.sleep(0.05)
            store.set(f"key {turn}", str(time.monotonic()))
        store.get("done")


def median_ms(call: Callable[[int], object], turns: int) -> float:
    """Return the median time of a call."""
    times = []
    for turn in range(turns):
        began = time.perf_counter()
        call(turn)
        times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times)


def measure(url: str, turns: int) -> str:
    """Return a row of the table."""
    with opened(url) as store:
        writes = median_ms(lambda turn: store.set("key", "value"), turns)
        reads = median_ms(lambda turn: store.get("key"), turns)
        other = get_context("spawn").Process(target=set_later, args=(url, turns))
        other.start()
        waits = []
        for turn in range(turns):
            store.set(f"ready {turn}", "")
            began = float(store.get(f"key {turn}"))
            waits.append(time.monotonic() - began)
        store.set("done", "")
        other.join(60)
    return f"| {type(store).__name__} | {writes:.2f} | {reads:.2f} | {1e3 * statistics.median(waits):.1f} |"


def main() -> None:
    """Print a table, with times in ms."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="+", help="where the stores are")
    parser.add_argument("--turns", type=int, default=100, help="how often each call is made")
    given = parser.parse_args()
    print("| store | set | get | get that waits, from the other's set on |\n|---|---|---|---|")
    for url in given.urls:
        print(measure(url, given.turns))


if __name__ == "__main__":
    main()
