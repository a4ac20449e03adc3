"""Where the ranks of a world meet: the store, this process's rank, and the number of ranks."""

from __future__ import annotations

import errno
import os
import time
import warnings
from typing import NamedTuple

from rankwise.backends.backend import BackendConfig
from rankwise.backends.declaration import Runtime
from rankwise.backends.registry import registry
from rankwise.basics.deadline import Deadline
from rankwise.basics.interrupts import held
from rankwise.errors import DistNetworkError, DistStoreError
from rankwise.groups.handshake import is_over, seats
from rankwise.groups.world import World
from rankwise.store import HashStore, PrefixStore, Store, StoreLike, as_store, innermost
from rankwise.store.rendezvous import LAUNCHER, rendezvous


class Joined(NamedTuple):
    """What a process knows once it has found the others' meeting place."""

    store: Store | None
    rank: int
    size: int


def join(
    world: World,
    config: BackendConfig,
    init_method: str | None,
    world_size: int,
    rank: int,
    store: Store | StoreLike | None,
    deadline: Deadline,
) -> Joined:
    """Find the meeting place from the arguments of `init_process_group`; a store made here is owned by `world`."""
    runtime = _runtime(config, rank, world_size, deadline)
    if runtime is not None:
        rank, world_size = runtime.rank, runtime.size
        if store is None and init_method is None:
            if runtime.store is None:
                return Joined(None, rank, world_size)
            return Joined(lend(world, world, runtime.store.view(deadline.remaining()), rank), rank, world_size)
    if store is not None:
        if not 0 <= rank < world_size:
            given = f"(got rank={rank}, world_size={world_size})"
            raise ValueError(f"init_process_group: with a store, give rank and world_size {given}")
        return Joined(lend(world, world, store, rank), rank, world_size)
    if world_size == 1 and rank in (0, -1) and init_method is None and "MASTER_ADDR" not in os.environ:
        return Joined(HashStore(), 0, 1)
    return _meet_at(world, init_method or LAUNCHER, rank, world_size, deadline)


def find_store(
    world: World,
    config: BackendConfig,
    init_method: str | None,
    world_size: int,
    rank: int,
    store: Store | StoreLike | None,
    deadline: Deadline,
) -> tuple[Store, int, int]:
    """Find the store in which processes meet that come and go, so that no life of it is told from another.

    Returns:
        It, which this process is at first (-1 if it was not told), and how many there should be.
    """
    runtime = _runtime(config, rank, world_size, deadline)
    if runtime is not None:
        rank, world_size = runtime.rank, runtime.size
        if store is None and init_method is None:
            return _of_runtime(runtime, deadline), rank, world_size
    if store is not None:
        lent = as_store(store)
        world.owned_store = None if lent is store else lent
        world.secret = world.secret or getattr(innermost(lent), "secret", None)
        return lent, rank, max(1, world_size)
    if world_size in (-1, 1) and rank in (0, -1) and init_method is None and "MASTER_ADDR" not in os.environ:
        return HashStore(), 0, 1
    found, rank, size = next(rendezvous(init_method or LAUNCHER, rank, world_size, timeout=deadline.remaining()))
    world.owned_store = found
    return found, rank, size


def _of_runtime(runtime: Runtime, deadline: Deadline) -> Store:
    if runtime.store is not None:
        return runtime.store.view(deadline.remaining())
    if runtime.size == 1:
        return HashStore()
    raise ValueError(
        "init_process_group: the backend's runtime has no store here (MPI has one with MPI_THREAD_MULTIPLE only), so "
        "give the store in which processes are to meet that reconfigure their group"
    )


def lend(world: World, home: World, store: Store | StoreLike, rank: int, prefix: str = "") -> Store:
    """Return where a world's life begins in a store that the program has given, and that outlives the world.

    `home` remembers the lives that this process has left, and `prefix` tells the world from others in the store.
    """
    lent = as_store(store)
    if lent is not store:
        world.owned_store = lent  # the adapter is ours
    world.lent_store = True
    world.secret = world.secret or getattr(innermost(lent), "secret", None)
    place = PrefixStore(prefix, lent) if prefix else lent
    return PrefixStore(_life(home, place, rank), place)


def _runtime(config: BackendConfig, rank: int, world_size: int, deadline: Deadline) -> Runtime | None:
    for name in config.backends():
        with held:  # a library that has begun half-way cannot begin again
            runtime = registry.runtime(name, deadline.timeout_s)
        if runtime is None:
            continue
        if rank not in (-1, runtime.rank) or world_size not in (-1, runtime.size):
            warnings.warn(
                f"{name} says that this is rank {runtime.rank} of {runtime.size}; the arguments rank={rank} and "
                f"world_size={world_size} are ignored",
                stacklevel=4,
            )
        return runtime
    return None


def _meet_at(world: World, address: str, rank: int, world_size: int, deadline: Deadline) -> Joined:
    """Join the life of the default group that is beginning at an address, not the one that is ending there.

    Ranks leave one after the other. One that comes back immediately may find the store of the life it has just left,
    which the last to leave has yet to close; it knows that life by its mark, and tries again.
    """
    pause_s = 0.002
    while True:
        try:
            store, here, size = next(rendezvous(address, rank, world_size, timeout=deadline.remaining()))
            if store.is_lent:
                world.owned_store = store  # this process's way to it
                return Joined(lend(world, world, store, here, "world"), here, size)
            life = _mark(store)
            if life != world.left.get(address):
                world.owned_store, world.joined = store, (address, life)
                return Joined(PrefixStore("world", store), here, size)
            store.close()
        except (DistNetworkError, DistStoreError) as error:
            if address not in world.left or deadline.expired() or _is_refused_by_system(error):
                raise
        time.sleep(min(pause_s, deadline.remaining()))
        pause_s = min(2 * pause_s, 0.1)


def _is_refused_by_system(error: Exception) -> bool:
    """Tell whether to try again is of no use; a port that is in use may be that of the life that is ending."""
    return getattr(error.__cause__, "errno", None) not in (None, errno.EADDRINUSE)


def _life(world: World, store: Store, rank: int) -> str:
    """Return the mark of the life that is beginning in a store given by the program.

    The first to come back ends the life that it has left. Those that were late for that one hear its verdict still.
    So does the first process of a new attempt, where a launcher gives each attempt the store of the one before.
    """
    found: list[bytes | None] = []
    told: bytes | None
    if (served := getattr(innermost(store), "identity", None)) is None:
        mark = told = store.compare_set("life", "", os.urandom(8).hex())
    else:  # the server's mark is that of the first life, which saves a request
        mark = served.hex().encode()
        told, *found = store._set_and_peek({}, ["life", *(f"{_place(mark)}/{key}" for key in seats(rank))])
        mark, found = (told, []) if told else (mark, found)
    while (mark, rank) in world.left_marks or is_over(PrefixStore(_place(mark), store), rank, found):
        store.compare_set("life", told or "", os.urandom(8).hex())
        mark = told = store.get("life")
        found = []
    world.left_marks.add((mark, rank))
    return _place(mark)


def _place(mark: bytes) -> str:
    return f"life-{mark.decode()}"


def _mark(store: Store) -> bytes:
    served: bytes | None = getattr(store, "identity", None)  # a server that a life has made lives as long
    if served is not None:
        return served
    try:
        return store.compare_set("life", "", os.urandom(8).hex())
    except BaseException:
        store.close()
        raise
