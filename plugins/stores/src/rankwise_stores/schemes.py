"""Where ranks meet: `env://`, `tcp://`, `file://`, and `launcher://`, where the program says nothing.

Each is an entry point of the group `rankwise.rendezvous`: a generator that yields the store, this process's rank, and
the number of ranks.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from rankwise.errors import DistError, DistNetworkError, DistTimeoutError
from rankwise.stores import Deadline, HashStore, Store, Timeout, seconds
from rankwise_network.launcher_env import from_environment, job_name, told_of_a_job
from rankwise_stores.tcp.store import TCPStore
from rankwise_stores.urls import place, query, refuse, split

Meeting = tuple[Store, int, int]

#: How long to look who has taken rank 0's port.
_WHO_IS_THERE_S = 5.0

_ALONE = (
    "rankwise: no launcher has started this process, so it is a world of one; "
    "`rankwise run -n 4 program.py` starts four, and init_process_group(rank=0, world_size=1) says that one is meant"
)


def launcher(url: str, timeout: Timeout) -> Iterator[Meeting]:
    """Meet where the environment says; a process that nobody has told anything is a world of one."""
    if "?" not in url and not told_of_a_job():
        import logging  # which a job that was launched has no need of here

        logging.getLogger("rankwise").warning(_ALONE)
        yield HashStore(), 0, 1
    else:
        yield from env(url.replace("launcher://", "env://", 1), timeout)


def env(url: str, timeout: Timeout) -> Iterator[Meeting]:
    """Meet where MASTER_ADDR and MASTER_PORT, or another launcher's variables, say."""
    rank = world_size = -1
    if url != "env://":
        parts = split(url)
        if parts.netloc or parts.path.strip("/"):
            refuse(url, "the rest is read from the environment; only a query may follow")
        told = query(url, parts)
        rank, world_size = int(told.get("rank", -1)), int(told.get("world_size", -1))
    assigned = from_environment(rank, world_size)
    if assigned.url:
        from rankwise_stores.server_schemes import opened  # only now: most jobs meet elsewhere

        store = opened(assigned.url, timeout)
        store.is_lent = True
        yield store, assigned.rank, assigned.world_size
        return
    try:
        store = _meet(assigned.master_addr, assigned.master_port, assigned.rank, seconds(timeout), assigned.is_served)
    except (DistNetworkError, DistTimeoutError) as error:
        origin = assigned.origin or f"MASTER_ADDR={assigned.master_addr}, MASTER_PORT={assigned.master_port}"
        raise type(error)(f"{error} ({origin})") from error.__cause__
    yield store, assigned.rank, assigned.world_size


def tcp(url: str, timeout: Timeout) -> Iterator[Meeting]:
    """Meet in a store that rank 0 serves at a host and port."""
    parts = split(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        refuse(url, str(error))
    if not host or port is None or parts.path.strip("/") or "@" in parts.netloc:
        refuse(url, "it must read like tcp://host:port, with an IPv6 address in brackets")
    rank, world_size = place(url, query(url, parts))
    if port == 0 and world_size > 1:
        refuse(url, f"port 0 is for a world of one; {world_size} ranks have to know the port")
    yield _meet(host, port, rank, seconds(timeout)), rank, world_size


def file(url: str, timeout: Timeout) -> Iterator[Meeting]:
    """Meet in a file that all can open."""
    parts = split(url)
    if parts.netloc not in ("", "localhost") or not parts.path.strip("/"):
        refuse(url, "it must read like file:///path, with three slashes")
    rank, world_size = place(url, query(url, parts))
    from rankwise_stores.file import FileStore  # only now: most jobs meet over TCP

    yield FileStore(parts.path, world_size, timeout, job=job_name()), rank, world_size


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
