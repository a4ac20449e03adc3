"""Calls made of the core's own: the face of the core for `rankwise-arrays`.

Calls over several arrays check, issue and wait by these names, and a plan binds a call to its arguments.
"""

from __future__ import annotations

from rankwise.basics.arguments import require
from rankwise.basics.arrays import AnyArray
from rankwise.basics.devices import empty_like, on_device_of, placed
from rankwise.calls import check
from rankwise.calls.calling import carry_out, failed
from rankwise.calls.fronts import TAKEN, Root
from rankwise.collective.call import Call
from rankwise.groups.process_group import GroupLike, ProcessGroup
from rankwise.groups.ranks import group_rank
from rankwise.groups.world import resolve

__all__ = [
    "TAKEN",
    "AnyArray",
    "Call",
    "GroupLike",
    "ProcessGroup",
    "Root",
    "carry_out",
    "check",
    "empty_like",
    "failed",
    "group_rank",
    "on_device_of",
    "placed",
    "require",
    "resolve",
]
