"""Ray Train with torch over rankwise: torch's process group of each worker is one of rankwise-torch's.

Importing this imports torch; nothing else in this package does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend


@dataclass
class RankwiseTorchConfig(TorchConfig):  # type: ignore[misc]
    """Ray's `TorchConfig`, whose backend is rankwise's: for `TorchTrainer(torch_config=...)`.

    Args:
        backend: A name of rankwise-torch's, such as "rankwise" or "cpu:rankwise,cuda:nccl".
    """

    backend: str | None = "rankwise"

    @property
    def backend_cls(self) -> Any:
        return _RankwiseTorchBackend


class _RankwiseTorchBackend(_TorchBackend):  # type: ignore[misc]
    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        worker_group.execute(_know_the_names)
        super().on_start(worker_group, backend_config)


def _know_the_names() -> None:
    """Register the names of rankwise-torch, which older versions of torch do not look for."""
    import rankwise_torch  # noqa: F401
