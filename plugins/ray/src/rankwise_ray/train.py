"""Ray Train without torch: a configuration that makes the workers of a data-parallel trainer ranks of a group.

Ray needs `RAY_TRAIN_V2_ENABLED=1` for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ray
from ray.train import BackendConfig
from ray.train.backend import Backend

import rankwise as dist
from rankwise.backends import Timeout, seconds
from rankwise_ray import judging

__all__ = ["RankwiseConfig"]

#: What rank 0 serves, in its process.
_served: list[dist.TCPStore] = []


@dataclass
class RankwiseConfig(BackendConfig):  # type: ignore[misc]
    """Gives each worker of `DataParallelTrainer` the default group, with Train's ranks.

    Args:
        backend: As for `rankwise.init_process_group`.
        timeout: Time-out of the group's operations, in seconds.
    """

    backend: str | None = None
    timeout: Timeout = 1800.0

    def __post_init__(self) -> None:
        judging.backend(self.backend)
        self.timeout = seconds(self.timeout)

    @property
    def backend_cls(self) -> Any:
        return _RankwiseBackend

    @property
    def framework(self) -> Any:
        return None

    def to_dict(self) -> dict[str, Any]:
        return {"backend": self.backend, "timeout": self.timeout}


class _RankwiseBackend(Backend):  # type: ignore[misc]
    """What Train calls when workers have been started, and before they are ended."""

    def on_start(self, worker_group: Any, backend_config: RankwiseConfig) -> None:
        secret = bytes(dist.secret.new())
        where = worker_group.execute_single(0, _serve, secret)
        size = len(worker_group)
        terms = secret, size, backend_config.backend, backend_config.timeout
        ray.get([worker_group.execute_single_async(rank, _join, where, rank, *terms) for rank in range(size)])

    def on_shutdown(self, worker_group: Any, backend_config: RankwiseConfig) -> None:
        worker_group.execute(_leave)


def _serve(secret: bytes) -> tuple[str, int]:
    address = ray.util.get_node_ip_address()
    _served.append(dist.TCPStore(address, is_master=True, secret=secret))
    return address, _served[-1].port


def _join(where: tuple[str, int], rank: int, secret: bytes, size: int, backend: str | None, timeout_s: float) -> None:
    store = _served[-1] if _served else dist.TCPStore(*where, secret=secret, timeout=timeout_s)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout_s)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
