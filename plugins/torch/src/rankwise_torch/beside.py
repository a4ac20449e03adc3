"""Groups for several kinds of devices, such as "cpu:rankwise,cuda:nccl".

Torch takes a group that is written in Python for the whole group, and asks no other backend. So this one makes a group
of torch's own for the other devices, and hands it what is not for the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d
from torch.distributed import ProcessGroup, Store

import rankwise
from rankwise_torch.group import RankwiseGroup
from rankwise_torch.opaque import left_alone
from rankwise_torch.request import helper


def backends_beside(backend: str) -> dict[str, str]:
    """Return the backends of other devices in the group that torch is making, by these devices."""
    config = helper().get("backend_config")
    return {} if config is None else {d: b for d, b in config.get_device_backend_map().items() if b != backend}


def beside(backend: str) -> ProcessGroup | None:
    """Make the group for the devices that other backends serve in the group that torch is making; None if none does."""
    local = helper()
    others = backends_beside(backend)
    if not others:
        return None
    group, _ = c10d._new_process_group_helper(
        *(local[name] for name in ("group_size", "group_rank", "global_ranks_in_group")),
        c10d.Backend(",".join(f"{device}:{other}" for device, other in others.items())),
        local["store"],
        f"{local['group_name']}/beside",
        **{name: local[name] for name in ("backend_options", "timeout", "device_id", "group_desc")},
    )
    c10d._cleanup_process_group_global_state(group)  # torch knows the whole group, and needs no part of it
    return group


class BesideGroup(RankwiseGroup):
    """A group that hands what is not for the CPU to another one, of the same ranks.

    Args:
        store: As for `RankwiseGroup`.
        under: As for `RankwiseGroup`.
        backend: As for `RankwiseGroup`.
        others: The group for other devices.
    """

    def __init__(self, store: Store, under: rankwise.ProcessGroup, backend: str, others: ProcessGroup) -> None:
        super().__init__(store, under, backend)
        self.others = others
        self.bound_device_id = others.bound_device_id

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), *self.others._device_types]

    def _get_backend(self, device: torch.device) -> Any:
        """Return what serves a device."""
        return self if torch.device(device).type == "cpu" else self.others._get_backend(device)

    def _set_group_name(self, name: str) -> None:
        super()._set_group_name(name)
        self.others._set_group_name(f"{name}/beside")

    setGroupName = _set_group_name

    def _set_group_desc(self, description: str) -> None:
        super()._set_group_desc(description)
        self.others._set_group_desc(description)

    setGroupDesc = _set_group_desc

    def set_timeout(self, timeout: timedelta) -> None:
        """Change the default time-out of operations, on all devices."""
        super().set_timeout(timeout)
        self.others.set_timeout(timeout)

    def abort(self) -> None:
        """Give the group up, on all devices."""
        super().abort()
        self.others.abort()

    def shutdown(self) -> None:
        """Finish what has been issued, on all devices."""
        self.others.shutdown()
        super().shutdown()


def _for_its_device(name: str) -> Callable[..., Any]:
    """Return the method `name`, which looks where the tensors of a call are."""
    ours = getattr(RankwiseGroup, name)

    def call(self: BesideGroup, *args: Any, **more: Any) -> Any:
        if _device_type([*args, *more.values()]) == "cpu":
            return ours(self, *args, **more)
        return getattr(self.others, name)(*args, **more)

    call.__name__, call.__doc__ = name, ours.__doc__
    return call


def _device_type(values: Iterable[Any]) -> str:
    """Return the kind of device of the first tensor among values, in lists of lists if need be."""
    for value in values:
        if isinstance(value, torch.device):
            return str(value.type)
        if isinstance(value, (torch.Tensor, c10d.BarrierOptions)):
            return "cpu" if value.device is None else str(value.device.type)
        if isinstance(value, (list, tuple)) and value and (found := _device_type(value)) != "":
            return found
    return "cpu"


_NAMES = """
    allreduce allreduce_coalesced reduce reduce_scatter reduce_scatter_single reduce_scatter_single_coalesced
    _reduce_scatter_base broadcast allgather all_gather_single
    all_gather_single_coalesced allgather_coalesced _allgather_base gather gather_single
    gather_into_tensor scatter alltoall all_to_all_single barrier send recv recv_anysource
    _start_coalescing _end_coalescing
""".split()  # noqa: SIM905 - a list of names reads better as text
for _name in _NAMES:
    setattr(BesideGroup, _name, _for_its_device(_name))
left_alone(BesideGroup)
