"""What a program may ask of its groups: `dist.init_process_group("nccl", pg_options=Options(...))`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Options:
    """The options of a group.

    Attributes:
        buffers: Arrays that are registered with each communicator on their device, as NCCL may then move data from and
            to them without copies of its own. The group keeps them until it is closed.
    """

    buffers: Sequence[Any] = ()
