"""Which ranks of a group are on one host, and who there has the first word."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import rankwise as dist
from rankwise_arrays.kinds import Group


def machine() -> str:
    """Return what stands for this machine, this process namespace and this user: who has the same can share memory."""
    boot = _text("/proc/sys/kernel/random/boot_id") or platform.node()
    return f"{boot}/{_namespace()}/{os.getuid()}"


class Company(NamedTuple):
    """The ranks of a group by host, as global ranks.

    Attributes:
        group: The group.
        rank: This rank.
        ranks: The ranks of this rank's host.
        heads: One rank of each host, who makes the memory there; the source of what is sent comes first.
    """

    group: Group
    rank: int
    ranks: list[int]
    heads: list[int]

    @property
    def head(self) -> int:
        """The head of this rank's host."""
        return next(rank for rank in self.ranks if rank in self.heads)


def company(machines: Sequence[str], group: Group, src: int | None) -> Company:
    """Arrange the ranks of a group, which have told what stands for their machines."""
    hosts: dict[str, list[int]] = {}
    for rank, each in zip(dist.get_process_group_ranks(group), machines, strict=True):
        hosts.setdefault(each, []).append(rank)
    heads = sorted((src if src in ranks else ranks[0] for ranks in hosts.values()), key=lambda rank: rank != src)
    me = dist.get_rank()
    return Company(group, me, next(ranks for ranks in hosts.values() if me in ranks), heads)


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
