"""A program that knows nothing of rankwise but two lines at its beginning; all else is written for torch's gloo.

    torchrun --nproc-per-node 2 unchanged.py
"""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist

import rankwise_torch

rankwise_torch.install(as_gloo=True)


def main() -> None:
    """Call what torch has for gloo alone."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.monitored_barrier(wait_all_ranks=True)
    tensor = torch.full((1000,), float(rank + 1))
    dist.all_reduce(tensor)
    settings = [{"rate": 0.1} if rank == 0 else None]
    dist.broadcast_object_list(settings, src=0)
    if tensor[0] != size * (size + 1) / 2 or settings != [{"rate": 0.1}]:
        raise SystemExit("wrong")
    if rank == 0:
        print(f"right: {dist.get_backend()} here is {type(dist.group.WORLD).__module__}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
