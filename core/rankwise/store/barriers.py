"""Barriers, made of the primitives: one value tells the generation, how many have come to it, and how many shall."""

from __future__ import annotations

from rankwise.errors import DistStoreError
from rankwise.store.limits import RESERVED
from rankwise.store.primitives import Missing, Primitives, change

__all__ = ["barrier", "barrier_lacks", "barrier_leave", "barrier_wait"]


def barrier(store: Primitives, name: str, size: int) -> bool | Missing:
    """Come to a barrier; return once all have come. The last to come begins the next generation."""
    mine = 0

    def come(found: bytes | None) -> bytes:
        nonlocal mine
        mine, come, expected = _barrier_state(found)
        if come and expected != size:
            raise DistStoreError(
                f"barrier {name!r}: world_size is {size} here, but {expected} for {come} that came before"
            )
        return b"%d %d %d" % ((mine + 1, 0, size) if come + 1 == size else (mine, come + 1, size))

    change(store, _barrier(name), come)
    return barrier_wait(store, name, mine)


def barrier_wait(store: Primitives, name: str, generation: int) -> bool | Missing:
    """Return once all have come to a barrier in which we are."""
    key = _barrier(name)
    if _barrier_state(store.peek(key))[0] > generation:
        return True
    return Missing(key, barrier_wait, (name, generation))


def barrier_leave(store: Primitives, name: str, generation: int) -> bool | Missing:
    """Leave a barrier before all have come, so that it can be used again; true if they have come meanwhile."""

    def leave(found: bytes | None) -> bytes | None:
        now, come, size = _barrier_state(found)
        return b"%d %d %d" % (now, come - 1, size) if now == generation and come else found

    change(store, _barrier(name), leave)
    return barrier_wait(store, name, generation)


def _barrier(name: str) -> str:
    return f"{RESERVED}barrier/{name}"


def _barrier_state(value: bytes | None) -> tuple[int, int, int]:
    generation, come, size = map(int, (value or b"0 0 0").split())
    return generation, come, size


def barrier_lacks(store: Primitives, name: str, generation: int) -> str:
    """Tell who has come."""
    _, come, size = _barrier_state(store.peek(_barrier(name)))
    return f"barrier {name!r}, to which {come} of {size} have come"
