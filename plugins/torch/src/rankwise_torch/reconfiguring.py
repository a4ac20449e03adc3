"""A default group of torch whose members change: below it is the default group of rankwise, which is reconfigured.

The helpers of torch 2.14 and later (`_supports_reconfigure`, `_get_reconfigure_handle`, `_reconfigure`) call methods of
the group, so a group that is written in Python has them. Torch 2.13 has neither these nor `enable_reconfigure`; there,
and in any later one, `init_reconfigurable` makes the same group, and rankwise's own calls reconfigure it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as c10d
import torch.distributed.distributed_c10d as helpers

import rankwise
from rankwise.backends import anew
from rankwise_torch.errors import as_torch_raises, of_both
from rankwise_torch.issuing import Issuer

#: The group of rankwise that torch's default group is being made from.
_below: list[rankwise.ProcessGroup] = []


def init_reconfigurable(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
) -> None:
    """Make torch's default group one whose members change; it is rankwise's default group too.

    The group has no members at first. `rankwise.reconfigure` or `rankwise.elastic` gives it some, and torch's calls go
    by them. It does the same with every torch that rankwise-torch supports.

    Args:
        backend: A backend of rankwise; None for its default.
        init_method: As for `rankwise.init_process_group`.
        timeout: As for `rankwise.init_process_group`.
        world_size: As for `rankwise.init_process_group`.
        rank: As for `rankwise.init_process_group`.
        store: As for `rankwise.init_process_group`; a store of torch is one too.

    Raises:
        ValueError: There is a default group already, of torch or of rankwise.
    """
    if c10d.is_initialized():
        raise ValueError("init_reconfigurable: torch's default group is already there; destroy it first")
    with as_torch_raises():
        rankwise.init_process_group(backend, init_method, timeout, world_size, rank, store, enable_reconfigure=True)
    under = rankwise.group.WORLD
    assert under is not None
    _below.append(under)
    try:
        # Its members meet in the store of rankwise, so each process gives torch one of its own.
        c10d.init_process_group("rankwise", store=c10d.HashStore(), rank=0, world_size=1)
    except BaseException:
        rankwise.destroy_process_group(under)
        raise
    finally:
        _below.clear()
    count_live(c10d.group.WORLD, under)


def below(backend: str, store: Any, rank: int, size: int, timeout: timedelta) -> rankwise.ProcessGroup:
    """Return the group of rankwise below a default group of torch that can be reconfigured.

    Args:
        backend: A backend of rankwise, for a group that torch's `enable_reconfigure` asks for; as the rest is.
        store: Where its processes meet.
        rank: What torch calls this process at first.
        size: How many processes there should be at first.
        timeout: How long calls may take.
    """
    if _below:
        return _below[0]
    terms = {"store": store, "rank": rank, "world_size": size, "timeout": timeout}
    rankwise.init_process_group(backend, enable_reconfigure=True, **terms)
    under = rankwise.group.WORLD
    assert under is not None
    return under


def is_made_from_below() -> bool:
    """Tell whether torch's default group is being made from one of rankwise that is there already."""
    return bool(_below)


@contextmanager
def errors_of_ranks() -> Iterator[None]:
    """Let a block raise what has ended the default group, where C++ has made a `RuntimeError` of it, as in `backward`.

    Raises:
        DistError: Why the group has failed, such as `PeerDiedError`; an error of rankwise and of torch.
    """
    try:
        yield
    except rankwise.DistError:
        raise
    except RuntimeError as error:
        failure = _failure(c10d.group.WORLD)
        if failure is None:
            raise
        raise of_both(anew(failure)) from error


class Reconfigurable:
    """What of torch's groups tells who may be a member, and makes others the members."""

    under: rankwise.ProcessGroup
    issuer: Issuer

    @property
    def supports_reconfigure(self) -> bool:
        """Whether the group's members change: it was made for that."""
        return rankwise.supports_reconfigure(self.under)

    def get_reconfigure_handle(self) -> str:
        """Return what tells this process from all others that may become members."""
        with as_torch_raises():
            return rankwise.get_reconfigure_handle(self.under)

    def reconfigure(self, opts: Any) -> Any:
        """Make the group one of the processes whose handles are given; return a work that has ended.

        Args:
            opts: As torch's `ReconfigureOptions`: uuid, handles, timeout and hints.

        Raises:
            ValueError: There are hints, of which rankwise knows none, or the handles are wrong.
        """
        if getattr(opts, "hints", None):
            raise ValueError(f"reconfigure: groups of rankwise know no hints, such as {next(iter(opts.hints))!r}")
        count_live(self, self.under)
        with as_torch_raises():
            work = rankwise.reconfigure(str(opts.uuid), opts.handles, self.under, opts.timeout)
        self.issuer.sequence = 0
        return self.issuer.pending(work, (), ())


class _Members(Mapping[int, int]):
    """What torch notes of its default group: for each global rank the same rank, however many there are just now."""

    def __init__(self, under: rankwise.ProcessGroup) -> None:
        self._under = under

    def __getitem__(self, rank: int) -> int:
        if rank not in self._under.ranks:
            raise KeyError(rank)
        return rank

    def __iter__(self) -> Iterator[int]:
        return iter(self._under.ranks)

    def __len__(self) -> int:
        return len(self._under.ranks)


def count_live(group: Any, under: rankwise.ProcessGroup) -> None:
    """Have torch know the members of its default group as they are, where it has noted those of the beginning."""
    noted = helpers._world.pg_group_ranks
    if group in noted and not isinstance(noted[group], _Members):
        noted[group] = _Members(under)


def _failure(group: Any) -> rankwise.DistError | None:
    under = getattr(group, "under", None)
    found = () if under is None else under.communicators()
    return next((each.failure for each in found if each.failure is not None), None)
