"""What the ranks of `test_recovery.py` do: they die in some number and at some moment, and the others go on."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
from failing import Heard, heard

import rankwise as dist
from rankwise.basics.deadline import Deadline
from rankwise.groups import handshake, making
from rankwise.groups.world import current
from rankwise.store import PrefixStore

TIMEOUT_S = 20
STANDS_S = 7


def go_on(deaths: dict[str, list[int]]) -> tuple[float, list[int]] | None:
    """Do what docs/reliability.md says, while some ranks die: at once, or at a moment of the shrinking."""
    dist.init_process_group("gloo", timeout=TIMEOUT_S)
    rank, array = dist.get_rank(), np.ones(4)
    dist.all_reduce(array)
    for moment, victims in deaths.items():
        if rank in victims:
            MOMENTS[moment]()
    group: Any = dist.group.WORLD
    while True:
        try:
            array[:] = 1
            dist.all_reduce(array, group=group)
            break
        except dist.PeerDiedError as error:
            group = dist.shrink_group([error.rank], group=group, shrink_flags=dist.SHRINK_ABORT)
    members = dist.get_process_group_ranks(group)
    dist.all_reduce(array, group=group)
    assert members is not None
    return float(array[0]), list(members)


def _die(*_: object, **__: object) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_in(module: Any, name: str) -> Callable[[], None]:
    return lambda: setattr(module, name, _die)


def _die_once_all_have_come() -> None:
    def verdict(store: Any, ranks: Any, *_: object) -> Any:
        store.add("come", 1)
        handshake.wait_for(store, "come", len(ranks) - 1, Deadline(1.0))
        _die()

    handshake._verdict = verdict


MOMENTS: dict[str, Callable[[], None]] = {
    "at once": _die,
    "before it comes": _die_in(making, "meet"),
    "when it has come": _die_once_all_have_come,
    "when they connect": _die_in(making, "_create"),
    "when it has connected": _die_in(making, "_settle"),
}


def make_a_group_while_the_store_stands_still(timeout: float | None) -> Heard:
    """Begin to make a group with rank 0, which hosts the store and stops when the others wait for it."""
    dist.init_process_group("gloo", timeout=TIMEOUT_S)
    dist.barrier()
    if dist.get_rank() == 0:
        place, deadline = PrefixStore("group-1/meet", current().store), Deadline(TIMEOUT_S)  # type: ignore[arg-type]
        while place.add("come", 0) < 2 and not deadline.expired():
            pass
        # Once the others are done; as long as it stands, it can end nothing itself.
        subprocess.Popen(["sh", "-c", f"sleep {STANDS_S}; kill -KILL {os.getpid()}"], close_fds=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    return heard(dist.new_group, [0, 1, 2], timeout=timeout)
