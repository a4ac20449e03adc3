"""What a program may say in `pg_options`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal, cast

Family = Literal["unix", "tcp"]


def _family() -> Family:
    return cast(Family, os.environ.get("WIRE_FAMILY", "unix"))


@dataclass(frozen=True)
class Options:
    """How the ranks of a group are connected.

    Attributes:
        family: Sockets in the file system, for ranks of one host, or TCP; by default what WIRE_FAMILY says.
        short_nbytes: Messages up to here are written by the thread that sends them.
    """

    family: Family = field(default_factory=_family)
    short_nbytes: int = 4096

    def __post_init__(self) -> None:
        if self.family not in ("unix", "tcp"):
            raise ValueError(f"the family of wire is 'unix' or 'tcp', not {self.family!r}")
