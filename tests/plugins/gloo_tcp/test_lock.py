"""One lock guards all state of an engine: a thread that touches it holds the lock, whatever the ranks do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import pytest
from programs import around

import rankwise as dist
from rankwise_testing import RankPool

#: What of each part is called with the lock held.
GUARDED = {
    "inbox": "receive withdraw send_to_self message offer payload fetched taken_directly leaving left died clear",
    "outbox": "send requested received refused credited left clear",
    "dispatcher": "frame lost garbled emit reply refresh give_credit pay pay_credit peer_left peer_died",
}

#: What is called by whichever way data goes.
TOUCHED = {"Inbox.receive", "Inbox.send_to_self", "Inbox.clear", "Outbox.clear"}


def _guarded(call: Callable[..., Any], lock: threading.Lock, called: set[str], wrong: list[str]) -> Callable[..., Any]:
    @wraps(call)
    def asked(*arguments: Any, **named: Any) -> Any:
        called.add(call.__qualname__)
        if not lock.locked():
            wrong.append(call.__qualname__)
        return call(*arguments, **named)

    return asked


def touch_everything() -> tuple[list[str], set[str]]:
    """Exchange messages of all kinds with the parts under guard.

    Returns:
        What was called without the lock, and what was called at all.
    """
    dist.init_process_group("gloo", timeout=30)
    rank, size = dist.get_rank(), dist.get_world_size()
    engine: Any = dist.group.WORLD.communicators()[0].engine  # type: ignore[union-attr, attr-defined]
    wrong, called = list[str](), set[str]()
    for part, names in GUARDED.items():
        thing = engine.dispatcher if part == "dispatcher" else getattr(engine.dispatcher, part)
        kind = type(thing)
        guarded = {name: _guarded(getattr(kind, name), engine.lock, called, wrong) for name in names.split()}
        thing.__class__ = type(kind.__name__, (kind,), {"__slots__": (), **guarded})  # it has no place for more itself
    after, before = (rank + 1) % size, (rank - 1) % size
    for nbytes in (1, 100_000, 6_000_000):
        array, room = np.full(nbytes, rank, np.uint8), np.zeros(nbytes, np.uint8)
        around(array, room)
        assert (room == before).all()
    dist.all_reduce(np.ones(500_000), async_op=True).wait()  # type: ignore[union-attr]
    dist.isend(np.zeros(2_000_000), after, tag=5)  # still with its sender when that leaves
    dist.isend(np.ones(3), rank)
    dist.recv(np.zeros(3), rank)
    dist.isend(np.ones(3), rank, tag=1)
    with pytest.raises(dist.DistBackendError):
        dist.recv(np.zeros(1), rank, tag=1)
    dist.destroy_process_group()
    return wrong, called


@pytest.mark.parametrize("native", ["on", "off"])
@pytest.mark.parametrize(
    "transport", [{"TRANSPORT": "tcp"}, {"TRANSPORT": "shm"}, {"TRANSPORT": "shm", "PEER_MEMORY": "off"}]
)
def test_the_engines_state_is_touched_with_its_lock_held(transport: dict[str, str], native: str) -> None:
    env = {f"RANKWISE_GLOO_{name}": value for name, value in transport.items()}
    with RankPool(3, env={**env, "RANKWISE_NATIVE": native}) as pool:
        found = pool.run(touch_everything)
    assert [wrong for wrong, _ in found] == [[]] * len(found)
    assert set.union(*(called for _, called in found)) >= TOUCHED
