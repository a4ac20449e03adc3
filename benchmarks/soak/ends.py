"""Ends: of a group whose messages are still on their way, and of a rank."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import rankwise as dist
from rankwise.groups.process_group import ProcessGroup
from soak.arrays import Room, lay_out
from soak.program import Step
from soak.values import dtype_of, part

if TYPE_CHECKING:
    from soak.rank import Rank

#: How soon others hear that a rank has died.
_SOON_S = 8.0


def farewell(rank: Rank, step: Step, group: ProcessGroup) -> None:
    """Make a group, send, perhaps meet, take what has come, and leave: others may still have to take theirs."""
    own = rank.new_group(rank.program.groups[step.group])
    assert own is not None
    me, messages = dist.get_rank(own), step.what["messages"]
    for number, message in enumerate(messages):
        if message.src == me:
            array = lay_out(part(message.dtype, message.count, step.at, number), 0, rank.roll)
            dist.isend(array, group=own, group_dst=message.dst)
    if step.what["collective"]:
        dist.barrier(own)
    for number, message in enumerate(messages):
        if message.dst == me:
            room = Room(dtype_of(message.dtype), message.count, rank.roll)
            dist.recv(room.array, group=own, group_src=message.src)
            room.check(part(message.dtype, message.count, step.at, number), f"last message {number} {message}")
    dist.destroy_process_group(own)


def death(rank: Rank, step: Step, group: ProcessGroup) -> None:
    """Let one rank die as soon as a barrier has returned there: it returns on all, and the next one tells them."""
    dist.barrier(group)
    me = dist.get_rank(group)
    if me == step.what["victim"]:
        if not step.what["idle"]:
            with suppress(dist.DistError):
                dist.isend(part("u1", 3_000_000, 1), group=group, group_dst=(me + 1) % dist.get_world_size(group))
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    told = _barrier(group)
    took = time.monotonic() - begin
    assert told, "a barrier has returned although a rank had died before it"
    assert took < _SOON_S, f"the death was told after {took:.1f} s: {told}"


def _barrier(group: ProcessGroup) -> str:
    """Return what a barrier raises; that it takes all its time is not meant."""
    try:
        dist.barrier(group)
    except dist.DistTimeoutError:
        raise
    except dist.DistError as error:
        return str(error)
    return ""
