"""torch.distributed over the backends of rankwise: programs of torch, unchanged but for the backend's name.

::

    import torch.distributed as dist
    import rankwise_torch

    dist.init_process_group("rankwise")  # or "cpu:rankwise,cuda:nccl"
"""

from __future__ import annotations

from rankwise_torch.as_gloo import install
from rankwise_torch.names import register

__all__ = ["install"]

register()
