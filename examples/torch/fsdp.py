"""Shard a model's parameters over the ranks with FSDP 2, on the CPU, over rankwise.

    torchrun --nproc-per-node 4 fsdp.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import rankwise_torch  # noqa: F401 - torch 2.14 and later find the name without this


def main() -> None:
    """Train a sharded model, and the same one whole, and compare them."""
    dist.init_process_group("rankwise")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
    torch.manual_seed(0)
    sharded = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
    for layer in sharded:
        fully_shard(layer)
    fully_shard(sharded)
    inputs = torch.randn(8, 32)  # the same on all ranks, so that the average is what one process computes
    for model in (whole, sharded):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
    for mine, other in zip(sharded.parameters(), whole.parameters(), strict=True):
        if not torch.allclose(mine.full_tensor(), other, atol=1e-6):  # type: ignore[attr-defined] # it is a DTensor
            raise SystemExit("the sharded model has learnt something else")
    if dist.get_rank() == 0:
        mine = sum(parameter.to_local().numel() for parameter in sharded.parameters())  # type: ignore[attr-defined]
        print(f"right: rank 0 keeps {mine} of {sum(p.numel() for p in whole.parameters())} parameters")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
