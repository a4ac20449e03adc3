"""The names by which torch knows rankwise's backends: "rankwise", and "rankwise-mpi" and so on."""

from __future__ import annotations

from typing import Any

import torch.distributed as c10d
from torch.distributed import ProcessGroup

from rankwise_torch.loading import without_collecting

#: The backend of rankwise that each name stands for; None takes rankwise's default for the CPU.
NAMES: dict[str, str | None] = {"rankwise": None, "rankwise-gloo": "gloo", "rankwise-mpi": "mpi"}


def register() -> None:
    """Tell torch the names. Importing `rankwise_torch` does, and torch itself from 2.14 on, by its entry points."""
    for name in NAMES:
        if name.upper() not in c10d.Backend._plugins:
            c10d.Backend.register_backend(name, creator(name), extended_api=True, devices=["cpu"])


def creator(name: str) -> Any:
    """Return what torch calls to make a group on the backend `name`."""

    def make(opts: Any, options: Any) -> ProcessGroup:
        with without_collecting():
            from rankwise.backends import require_series

            require_series("rankwise-torch", "0.1")
            from rankwise_torch.creation import create  # only who uses it pays for it

            return create(name, opts)

    return make


def backend_of(name: str) -> str:
    """Return the backend of rankwise that a name stands for."""
    import rankwise

    return NAMES.get(name) or rankwise.get_default_backend_for_device("cpu")
