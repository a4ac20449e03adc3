"""`group.WORLD` and `GroupMember.WORLD`: the default group, under the two names that torch has for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankwise.groups.process_group import NON_GROUP_MEMBER, ProcessGroup
from rankwise.groups.world import current

__all__ = ["WORLD", "GroupMember", "ProcessGroup"]

if TYPE_CHECKING:
    WORLD: ProcessGroup | None
    """The default group, or None before `init_process_group`."""


class _GroupMemberMeta(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The default group, or None before `init_process_group`."""
        return current().default


class GroupMember(metaclass=_GroupMemberMeta):
    """`GroupMember.WORLD` is the default group; `NON_GROUP_MEMBER` is what a non-member gets for a group."""

    NON_GROUP_MEMBER = NON_GROUP_MEMBER


def __getattr__(name: str) -> ProcessGroup | None:
    if name == "WORLD":
        return current().default
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
