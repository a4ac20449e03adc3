"""Train a small network on the CPU with torch's DistributedDataParallel, over rankwise.

    torchrun --nproc-per-node 4 ddp.py
    torchrun --nproc-per-node 4 ddp.py gloo          # torch's own, to compare
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch import nn

import rankwise_torch  # noqa: F401 - torch 2.14 and later find the name without this


def main(backend: str = "rankwise", steps: int = 50) -> None:
    """Train, and check that all ranks have the same parameters at the end."""
    dist.init_process_group(backend)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # ranks, and not threads, share the cores
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    teacher = torch.randn(64, 10)
    torch.manual_seed(1 + dist.get_rank())  # everyone draws samples of its own
    began, loss = time.perf_counter(), torch.zeros(())
    for _ in range(steps):
        inputs = torch.randn(64, 64)
        loss = nn.functional.cross_entropy(model(inputs), (inputs @ teacher).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    took_ms = (time.perf_counter() - began) / steps * 1e3

    total = sum(parameter.double().sum() for parameter in model.parameters())
    totals: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(totals, float(total))
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks over {backend}: loss {loss.item():.3f}, {took_ms:.1f} ms a step")
    if len(set(totals)) > 1:
        raise SystemExit("the ranks have ended with different parameters")
    if dist.get_rank() == 0:
        print("parameters of all ranks are identical, bit for bit")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:2])
