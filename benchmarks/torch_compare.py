"""torch.distributed over rankwise and over torch's gloo, in turns in one run: calls, objects, DDP steps, beginnings.

    python benchmarks/torch_compare.py [RANKS] [--markdown]

Prints for each call the median time of both and their ratio. Ratios of one run mean something; times depend on what
else the machine does. torch computes with one thread in each rank, so that ranks and not threads share the cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

SIZES = {"8 B": 2, "1 KiB": 256, "64 KiB": 1 << 14, "1 MiB": 1 << 18, "16 MiB": 1 << 22, "64 MiB": 1 << 24}
MODELS = {"100 KB": (160, 1), "10 MB": (1600, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("ranks", type=int, nargs="?", default=2)
    parser.add_argument("--markdown", action="store_true", help="print a table for the documentation")
    parser.add_argument("--only", default="", help="measure what has this in its name")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        _measure(given)
        return
    with tempfile.TemporaryDirectory() as folder:
        own = [sys.executable, *sys.argv, "--store", os.path.join(folder, "store"), "--rank"]
        ranks = [subprocess.Popen([*own, str(rank)]) for rank in range(given.ranks)]
        try:
            failed = [rank.wait(timeout=900) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    sys.exit(max(failed))


def _measure(given: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist

    import rankwise_torch  # noqa: F401 - registers the name

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{given.store}", rank=given.rank, world_size=given.ranks)
    groups = {"gloo": dist.group.WORLD, "rankwise": dist.new_group(backend="rankwise")}
    report = _Report(given.rank == 0, given.markdown)
    for name, make in _cases(torch, dist).items():
        if given.only in name:
            report.add(name, _in_turns(dist, {whose: make(group) for whose, group in groups.items()}))
    if given.only in "beginning" and given.rank == 0:
        report.add("first init of a process", _beginnings())
    dist.barrier()
    dist.destroy_process_group()


def _cases(torch, dist):
    cases = {}
    for label, count in SIZES.items():
        cases[f"all_reduce {label}"] = lambda g, n=count: _with(torch.ones(n), lambda x: dist.all_reduce(x, group=g))
        cases[f"broadcast {label}"] = lambda g, n=count: _with(torch.ones(n), lambda x: dist.broadcast(x, 0, group=g))
        cases[f"all_gather {label}"] = lambda g, n=count: _gathering(torch, dist, g, n)
        cases[f"reduce_scatter_tensor {label}"] = lambda g, n=count: _scattering(torch, dist, g, n)
        cases[f"send and recv {label}"] = lambda g, n=count: _ping(torch, dist, g, n)
    for label, size in {"8 B": 8, "64 KiB": 1 << 16}.items():
        cases[f"broadcast_object_list {label}"] = lambda g, n=size: _objects(dist, g, n)
    cases["barrier"] = lambda g: lambda: dist.barrier(group=g)
    for label, (width, depth) in MODELS.items():
        cases[f"DDP step, {label} of parameters"] = lambda g, w=width, d=depth: _training(torch, g, w, d)
    return cases


def _with(tensor, call):
    return lambda: call(tensor)


def _gathering(torch, dist, group, count):
    outputs = [torch.empty(count) for _ in range(group.size())]
    tensor = torch.ones(count)
    return lambda: dist.all_gather(outputs, tensor, group=group)


def _scattering(torch, dist, group, count):
    size = group.size()
    whole = torch.ones(max(count // size, 1) * size)
    output = torch.empty(whole.numel() // size)
    return lambda: dist.reduce_scatter_tensor(output, whole, group=group)


def _ping(torch, dist, group, count):
    """There and back between the first two ranks; the others do nothing."""
    tensor, rank = torch.ones(count), group.rank()

    def call():
        if rank == 0:
            dist.send(tensor, group=group, group_dst=1)
            dist.recv(tensor, group=group, group_src=1)
        elif rank == 1:
            dist.recv(tensor, group=group, group_src=0)
            dist.send(tensor, group=group, group_dst=0)

    return call


def _objects(dist, group, nbytes):
    objects = [b"x" * nbytes]
    return lambda: dist.broadcast_object_list(objects, 0, group=group)


def _training(torch, group, width, depth):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, width) for _ in range(depth)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), process_group=group)
    optimizer, inputs = torch.optim.SGD(model.parameters(), 0.01), torch.ones(4, width)

    def step():
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def _in_turns(dist, calls):
    """Return the median time of each call in seconds, measured in blocks that take turns."""
    times = {whose: [] for whose in calls}
    for call in calls.values():
        call(), call()
    count = _count(dist, calls["gloo"])
    for _ in range(7):
        for whose, call in calls.items():
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(count):
                call()
            times[whose].append((time.perf_counter() - begin) / count)
    return {whose: statistics.median(each) for whose, each in times.items()}


def _count(dist, call):
    """Return how many calls make a block of about a twentieth of a second, the same on all ranks."""
    dist.barrier()
    begin = time.perf_counter()
    call(), call(), call()
    count = [max(3, min(1000, int(0.15 / (time.perf_counter() - begin))))]
    dist.broadcast_object_list(count, 0)
    return count[0]


def _beginnings():
    """Return how long the first init of a process takes, in worlds of one."""
    program = (
        "import sys, time, torch, torch.distributed as dist, rankwise_torch\n"
        "begin = time.perf_counter()\n"
        "dist.init_process_group(sys.argv[1], store=dist.HashStore(), rank=0, world_size=1)\n"
        "print(time.perf_counter() - begin)\n"
    )
    times = {"gloo": [], "rankwise": []}
    for _ in range(3):
        for whose, each in times.items():
            found = subprocess.run([sys.executable, "-c", program, whose], check=True, capture_output=True, text=True)
            each.append(float(found.stdout.split()[-1]))
    return {whose: statistics.median(each) for whose, each in times.items()}


class _Report:
    def __init__(self, speaks: bool, markdown: bool) -> None:
        self.speaks, self.markdown = speaks, markdown
        if speaks and markdown:
            print("| call | torch's gloo, us | rankwise, us | ratio |\n|---|---|---|---|")

    def add(self, name, times):
        if not self.speaks:
            return
        theirs, ours = times["gloo"] * 1e6, times["rankwise"] * 1e6
        if self.markdown:
            print(f"| {name} | {theirs:,.0f} | {ours:,.0f} | {theirs / ours:.1f} |", flush=True)
        else:
            print(f"{name:34} {theirs:10.1f} us {ours:10.1f} us {theirs / ours:6.2f} x", flush=True)


if __name__ == "__main__":
    main()
