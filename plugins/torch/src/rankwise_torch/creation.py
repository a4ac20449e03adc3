"""How a group of torch's comes to be: a group of rankwise that meets in torch's own store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torch.distributed import GroupMember, ProcessGroup

import rankwise
from rankwise_torch.beside import BesideGroup, backends_beside, beside
from rankwise_torch.errors import as_torch_raises
from rankwise_torch.group import RankwiseGroup
from rankwise_torch.handing import hand_on_works
from rankwise_torch.names import backend_of
from rankwise_torch.reconfiguring import below, is_made_from_below
from rankwise_torch.recording import leave_ours_alone
from rankwise_torch.request import Request, asked
from rankwise_torch.trust import share

# Errors and the flight recorder name the line of the program, which is neither torch's nor ours.
rankwise.skip_callers("torch", "rankwise_torch")
leave_ours_alone()
hand_on_works()

#: How long groups may take to be made whose calls have less: torch gives that to each of several steps, one by one.
_MAKING = timedelta(seconds=5)


def create(name: str, opts: Any) -> ProcessGroup:
    """Make the group that torch asks for with its `DistributedBackendOptions`."""
    request = asked(opts.store, opts.group_rank, opts.group_size, name, opts.timeout)
    if getattr(opts, "enable_reconfigure", False) or is_made_from_below():
        return make_reconfigurable(request)
    return make(request)


def make_reconfigurable(request: Request) -> RankwiseGroup:
    """Make a default group that has no members until it is reconfigured.

    Raises:
        ValueError: It is for several kinds of devices.
    """
    if backends_beside(request.backend):
        raise ValueError("a group for several kinds of devices cannot be reconfigured")
    if not is_made_from_below():
        share(request.store)
    with as_torch_raises():
        terms = request.store, request.rank, len(request.ranks), max(request.timeout, _MAKING)
        return RankwiseGroup(request.store, below(backend_of(request.backend), *terms), request.backend)


def make(request: Request) -> RankwiseGroup:
    """Make a group, and return once all its ranks have come."""
    parent = _parent(request)
    if parent is None:
        share(request.store)
    with as_torch_raises():
        under = rankwise.ProcessGroup.create(
            store=request.store if parent is None else None,
            parent=parent,
            rank=request.rank,
            size=len(request.ranks),
            name=request.name,
            backend=backend_of(request.backend),
            timeout=max(request.timeout, _MAKING),
            ranks=request.ranks,
            description=request.description,
        )
    under.set_timeout(request.timeout)
    others = beside(request.backend)
    if others is not None:
        return BesideGroup(request.store, under, request.backend, others)
    return RankwiseGroup(request.store, under, request.backend)


def _parent(request: Request) -> rankwise.ProcessGroup | None:
    """Return the group of rankwise below torch's default group, whose store and watcher all others share.

    A client of torch's store for each group would cost descriptors, and now and then the seconds that torch waits where
    it makes one; and a watcher a thread.
    """
    default = GroupMember.WORLD
    if not isinstance(default, RankwiseGroup) or default.is_down:
        return None
    return default.under if set(request.ranks) <= set(default.under.ranks) else None
