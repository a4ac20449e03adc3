"""`RankwiseGroup`: a process group of torch that hands its calls to a group of rankwise."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import PrefixStore, ProcessGroup, Store

import rankwise
from rankwise_torch.dispatching import CALLS, by_the_dispatcher
from rankwise_torch.errors import as_torch_raises
from rankwise_torch.gathers import Gathers
from rankwise_torch.identity import Identity, Options
from rankwise_torch.issuing import Issuer
from rankwise_torch.lacking import Lacking
from rankwise_torch.messages import SendsAndReceives
from rankwise_torch.opaque import left_alone
from rankwise_torch.reconfiguring import Reconfigurable
from rankwise_torch.reductions import Reductions
from rankwise_torch.request import Request


class RankwiseGroup(Identity, Reductions, Gathers, SendsAndReceives, Reconfigurable, Lacking, ProcessGroup):  # type: ignore[misc] # torch has no types
    """A process group of torch for tensors on the CPU.

    Synchronous calls have ended when they return, without a thread or a future; asynchronous ones return a work. Torch
    calls these methods from Python as they are, and from C++ those that its `PyProcessGroup` dispatches. It finds them
    in this class alone, so each family of them is a part of it; what they share is the `issuer`.

    Args:
        store: The group's own part of torch's store.
        under: The group of rankwise, of the same ranks.
        backend: The name by which torch knows the backend.
    """

    def __init__(self, store: Store, under: rankwise.ProcessGroup, backend: str) -> None:
        super().__init__(under.rank(), under.size())
        self.under, self.backend, self.store = under, backend, store
        self.issuer = Issuer(under, backend)
        self.name_in_torch, self.description = under.name, under.group_desc
        self.options = Options(under.timeout)
        self.is_down = False

    def get_group_store(self) -> Store:
        """Return the group's part of torch's store."""
        return self.store

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Return once all ranks have called; tell every rank that has which are missing."""
        with as_torch_raises():
            rankwise.monitored_barrier(self.under, timeout, wait_all_ranks)

    def split_group(
        self,
        new_ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Sequence[torch.device] | None = None,
    ) -> RankwiseGroup | None:
        """Make a group of some of this group's ranks; None on a rank that is not one of them."""
        from rankwise_torch.creation import make  # which knows this class

        if self.rank() not in new_ranks:
            return None
        name = group_name or f"{self.group_name}:split:{'-'.join(map(str, new_ranks))}"
        ranks = [self.under.ranks[rank] for rank in new_ranks]
        store, rank = PrefixStore(f"{name}/", self.store), new_ranks.index(self.rank())
        return make(Request(store, rank, ranks, self.backend, timeout or self.under.timeout, name, group_desc or name))

    splitGroup = split_group

    def abort(self) -> None:
        """Give the group up: what is pending on it, here and at the peers, fails."""
        self.under.abort("by abort()")

    def shutdown(self) -> None:
        """Finish what has been issued, and give back all that the group holds.

        The default group ends all others with it, which torch may still shut down afterwards.
        """
        self.is_down = True
        if self.under.is_open():
            with as_torch_raises():
                rankwise.destroy_process_group(self.under)


for _name in CALLS:
    setattr(RankwiseGroup, _name, by_the_dispatcher(_name, getattr(RankwiseGroup, _name)))
# The names of before 2.13, which programs still call. The others that torch's class has find their way to the new ones.
RankwiseGroup._allgather_base = RankwiseGroup.all_gather_single
RankwiseGroup._reduce_scatter_base = RankwiseGroup.reduce_scatter_single
left_alone(RankwiseGroup)
