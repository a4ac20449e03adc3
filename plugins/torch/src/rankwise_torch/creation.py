"""How a group of torch's comes to be: a group of rankwise that meets in torch's own store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torch.distributed import ProcessGroup

import rankwise
from rankwise_torch.beside import BesideGroup, beside
from rankwise_torch.errors import as_torch_raises
from rankwise_torch.group import RankwiseGroup
from rankwise_torch.names import backend_of
from rankwise_torch.recording import leave_ours_alone
from rankwise_torch.request import Request, asked
from rankwise_torch.trust import share

__all__ = ["create", "make"]

# Errors and the flight recorder name the line of the program, which is neither torch's nor ours.
rankwise.skip_callers("torch", "rankwise_torch")
leave_ours_alone()

#: How long groups may take to be made whose calls have less: torch gives that to each of several steps, one by one.
_MAKING = timedelta(seconds=5)


def create(name: str, opts: Any) -> ProcessGroup:
    """Make the group that torch asks for with its `DistributedBackendOptions`."""
    return make(asked(opts.store, opts.group_rank, opts.group_size, name, opts.timeout))


def make(request: Request) -> RankwiseGroup:
    """Make a group, and return once all its ranks have come."""
    share(request.store)
    with as_torch_raises():
        under = rankwise.ProcessGroup.create(
            store=request.store,
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
