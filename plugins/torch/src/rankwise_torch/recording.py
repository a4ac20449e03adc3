"""Torch's flight recorder leaves our groups alone: rankwise has its own, which knows the calls better.

From 2.15 on torch hooks its recorder to each new group, which C++ refuses where the group is written in Python. Torch
knows such groups by serving no device; but ours say which they serve, as much else of torch asks for it.
"""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed.distributed_c10d as c10d

from rankwise_torch.group import RankwiseGroup


def leave_ours_alone() -> None:
    """Have torch hook its flight recorder only to groups that are not ours, in a torch that hooks it to all."""
    attach = getattr(c10d, "_maybe_attach_flight_recorder", None)
    if attach is None or hasattr(attach, "__wrapped__"):
        return

    @functools.wraps(attach)
    def unless_ours(group: Any, *args: Any, **more: Any) -> None:
        if not isinstance(group, RankwiseGroup):
            attach(group, *args, **more)

    c10d._maybe_attach_flight_recorder = unless_ours
