"""The place of a job: what its ranks need, reserved in one request, as long as those are there whom the job is for."""

from __future__ import annotations

import asyncio
import os
import secrets
import select
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rankwise_network import processes

_SPACE = "rankwise"
#: How often a guard looks whether its caller is there.
_LOOK_S = 0.25


class Place:
    """Reserved resources.

    Ray gives the placement groups of a driver back when that ends, but those of a task or an actor only with the whole
    job. So in these a guard makes the placement group: an actor that ends with its caller, and its placement group with
    it.

    Args:
        needs: What each rank needs.
        ranks: How many ranks there are.
        strategy: How they are placed.
        timeout_s: How long a guard may take to begin.

    Raises:
        ray.exceptions.GetTimeoutError: The guard has not begun in time.
    """

    def __init__(self, needs: Mapping[str, float], ranks: int, strategy: str, timeout_s: float) -> None:
        self._guard: Any = None
        bundles = [dict(needs)] * ranks
        if ray.get_runtime_context().worker.mode != ray.WORKER_MODE:
            self.group: PlacementGroup = placement_group(bundles, strategy=strategy)
            return
        self._guard = _guard()
        try:
            self._guard.end_after.remote(os.getpid())
            self.group = ray.get(self._guard.reserve.remote(bundles, strategy), timeout=timeout_s)
        except BaseException:
            ray.kill(self._guard)
            raise

    def give_back(self) -> None:
        """Give the resources back, if there still is a cluster that they are of."""
        with suppress(Exception):
            if ray.is_initialized():
                remove_placement_group(self.group)
                if self._guard is not None:
                    ray.kill(self._guard)


def _guard() -> Any:
    """Return a guard on this node: an actor that nobody owns, as Ray ends what an actor has made with such alone."""
    return (
        ray.remote(_Guard)
        .options(
            name=f"place {secrets.token_hex(8)}",
            namespace=_SPACE,
            lifetime="detached",
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False),
        )
        .remote()
    )


class _Guard:
    """Has a placement group that ends with it, and ends with its caller."""

    async def reserve(self, bundles: list[dict[str, float]], strategy: str) -> PlacementGroup:
        """Make the placement group; it need not be there yet."""
        return placement_group(bundles, strategy=strategy)

    async def end_after(self, pid: int) -> None:
        """End with a process of this node."""
        descriptor = processes.watch(pid)
        while not _has_ended(pid, descriptor):
            with suppress(asyncio.CancelledError):  # a caller that is cancelled takes its calls along
                await asyncio.sleep(_LOOK_S)
        ray.actor.exit_actor()


def _has_ended(pid: int, descriptor: int) -> bool:
    if descriptor < 0:
        return processes.is_gone(pid)
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
