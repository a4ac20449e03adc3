"""Worlds of several ranks in one process, on the double."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from double import Array, Rank
from fabric import Fabric

from rankwise.backends.contract import Context
from rankwise.store import HashStore
from rankwise_nccl.communicator import NcclCommunicator

__all__ = ["PATIENCE_S", "Array", "Fabric", "Member", "Rank", "array", "world"]

PATIENCE_S = 20.0


class Member:
    """One rank: its communicator, and the log of its calls."""

    def __init__(self, rank: int, size: int, store: Any, fabric: Fabric, **fields: Any) -> None:
        fields = {"timeout_s": PATIENCE_S, "devices": ("cuda",), **fields}
        names = fields.pop("global_ranks", tuple(range(size)))
        self.rank, self.size = rank, size
        self.double = Rank(fabric, device=rank)
        self.context = Context("test", rank, size, names, store=store, **fields)
        self.comm = NcclCommunicator(self.context, self.double.api)

    def array(self, values: Any, dtype: Any = np.float32) -> Array:
        """Return an array on this rank's device."""
        return array(values, dtype, self.rank)


def array(values: Any, dtype: Any = np.float32, device: int = 0) -> Array:
    """Return an array of the double with these values."""
    return Array(np.array(values, dtype), device)


def world(size: int, body: Callable[[Member], Any], close: bool = True, **fields: Any) -> list[Any]:
    """Run `body` on each rank, and return what they return; the first error is raised when all have ended."""
    store, fabric = fields.pop("store", None) or HashStore(), fields.pop("fabric", None) or Fabric()
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            member = Member(rank, size, store, fabric, **fields)
            results[rank] = body(member)
            if close:
                member.comm.drain(PATIENCE_S)
                member.comm.shutdown()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S + 10)
    assert errors or not any(thread.is_alive() for thread in threads), "a rank hangs"
    if errors:
        raise errors[0]
    assert not fabric.crimes
    return results
