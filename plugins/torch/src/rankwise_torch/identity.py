"""What a group says of itself: names, devices, time-outs, sequence numbers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch.distributed import ProcessGroup

import rankwise
from rankwise_torch.issuing import Issuer


class Options:
    """What torch notes of a backend's options: its own gloo has some, and programs read them."""

    def __init__(self, timeout: timedelta) -> None:
        self._timeout = timeout
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""


class Identity:
    """What of torch's groups tells who it is. C++ asks for some of it by its own names, such as `getRank`."""

    under: rankwise.ProcessGroup
    backend: str
    issuer: Issuer
    name_in_torch: str
    description: str
    options: Options

    #: What torch asks of backends before it uses what not all have.
    supports_splitting = True
    supports_coalescing = False
    supports_shrinking = False
    supports_time_estimate = False

    def rank(self) -> int:
        """Return this process's rank in the group."""
        return self.under.rank()

    def size(self) -> int:
        """Return the number of ranks."""
        return self.under.size()

    def name(self) -> str:
        """Return the backend's name."""
        return self.backend

    @property
    def group_name(self) -> str:
        """The group's unique name."""
        return self.name_in_torch

    def _set_group_name(self, name: str) -> None:
        self.name_in_torch = name

    @property
    def group_desc(self) -> str:
        """What messages call the group."""
        return self.description

    def _set_group_desc(self, description: str) -> None:
        self.description = self.under.group_desc = description

    def getGroupName(self) -> str:
        """Return the group's unique name."""
        return self.name_in_torch

    def getGroupDesc(self) -> str:
        """Return what messages call the group."""
        return self.description

    def getBackendName(self) -> str:
        """Return a name that C++ does not take for a backend of its own, as it would "gloo"."""
        return "rankwise"

    getRank, getSize, _get_backend_name = rank, size, name
    setGroupName, setGroupDesc = _set_group_name, _set_group_desc

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, device: torch.device) -> ProcessGroup:
        """Return what serves a device: this group itself, for the CPU."""
        if torch.device(device).type != "cpu":
            raise RuntimeError(f"group {self.description!r} has {self.backend!r} for the CPU and nothing for {device}")
        return self

    def get_backend(self, device: torch.device) -> ProcessGroup:
        """Return what serves a device, by the name that torch 2.15 has for it."""
        return self._get_backend(device)

    def _backend_id(self, backend_type: Any) -> int:
        return id(self)

    def set_timeout(self, timeout: timedelta) -> None:
        """Change the default time-out of operations."""
        self.under.set_timeout(timeout)
        self.options._timeout = timeout

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: all ranks count from 0."""

    def _get_sequence_number_for_group(self) -> int:
        """Return how many collectives this rank has issued."""
        return self.issuer.sequence

    def _has_hooks(self) -> bool:
        """Say no: rankwise calls back at the end of each work that is asked to, and knows no others."""
        return False

    def _wait_for_pending_works(self) -> None:
        """Do nothing: there are no hooks to wait for."""

    def _enable_collectives_timing(self) -> None:
        """Do nothing: the flight recorder notes begin and end of every call."""

    def _set_default_backend(self, backend_type: Any) -> None:
        """Do nothing: there is one backend."""
