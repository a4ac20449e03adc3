"""What the ranks of `test_recovery.py` do: they die in some number and at some moment, and the others go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np

import rankwise as dist
from rankwise.basics.deadline import Deadline
from rankwise.groups import handshake, lifecycle

TIMEOUT_S = 20


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
        handshake.wait_for(store, "come", len(ranks) - 1, Deadline(1.0))
        _die()

    handshake._verdict = verdict


MOMENTS: dict[str, Callable[[], None]] = {
    "at once": _die,
    "before it comes": _die_in(lifecycle, "meet"),
    "when it has come": _die_once_all_have_come,
    "when they connect": _die_in(lifecycle, "_create"),
    "when it has connected": _die_in(lifecycle, "_settle"),
}
