"""torch.distributed over the backends of rankwise: programs of torch, unchanged but for the backend's name.

::

    import torch.distributed as dist
    import rankwise_torch

    dist.init_process_group("rankwise")  # or "cpu:rankwise,cuda:nccl"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankwise_torch.as_gloo import install
from rankwise_torch.names import register

if TYPE_CHECKING:
    from rankwise_torch.reconfiguring import errors_of_ranks, init_reconfigurable

__all__ = ["errors_of_ranks", "init_reconfigurable", "install"]

register()


def __getattr__(name: str) -> Any:
    if name in __all__:
        from rankwise_torch import reconfiguring  # which only few programs need

        return getattr(reconfiguring, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
