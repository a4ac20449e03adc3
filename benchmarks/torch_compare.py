"""torch.distributed over rankwise and over torch's gloo, in turns in one run: the tables of docs/torch.md.

    python benchmarks/torch_compare.py [--ranks 2 4] [--only NAME] [--write docs/torch.md]

Prints for each call the median time of both and their ratio, then which aims are reached. Ratios of one run mean
something; times depend on what else the machine does. torch computes with one thread in each rank, so that ranks and
not threads share the cores. Run it where nothing else runs; it takes some five minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pages

SMALL = {"8 B": 2, "1 KiB": 256, "64 KiB": 1 << 14}
LARGE = {"1 MiB": 1 << 18, "16 MiB": 1 << 22, "64 MiB": 1 << 24}
SIZES = {**SMALL, **LARGE}
MODELS = {"100 KB": (160, 1), "10 MB": (1600, 1)}

#: How many times faster than gloo each kind of call is to be in the mean, on 2 ranks and on 4.
AIMS = {
    "calls of 8 B to 64 KiB": (10.0, 10.0),
    "calls of 1 to 64 MiB": (3.0, 2.5),
    "barrier": (15.0, 15.0),
    "broadcast_object_list": (4.0, 4.0),
    "DDP step, 100 KB of parameters": (2.0, 2.0),
    "DDP step, 10 MB of parameters": (1.3, 1.3),
}
#: How many times faster the slowest of the calls is to be.
LEAST = 1.5
#: What the first init of a process may take beside one and a half times that of gloo, and a call beside our own, in us.
BEGINNING_US, BRIDGE_US = 60_000, 5

Times = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--only", default="", help="measure what has this in its name")
    parser.add_argument("--write", type=Path, help="a page to put the figures in; that of aims gets the rest")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        _measure(given)
        return
    aims = list[str]()
    told = [f"{pages.machine()}, torch {version('torch')}, rankwise {version('rankwise')}."]
    for ranks in given.ranks:
        found: dict[str, Times] = launch(__file__, ranks, "--only", given.only)
        aims.append(_aims(found, ranks))
        told += [_cells(found, ranks), pages.columns(aims[-1], 3)]
    if given.only in "first init of a process":
        times = _beginnings()
        told.append(_told_of_beginnings(times))
        aims.append(_aim_of_beginnings(times))
    text, reached = ("\n\n".join(part for part in parts if part) for parts in (told, aims))
    print(f"\n{text}\n\n{reached}")
    if given.write:
        pages.put_into(given.write, text)
        pages.put_into(pages.AIMS, reached, "torch")


# ---------------------------------------------------------------------- what is told


def _cells(found: dict[str, Times], ranks: int) -> str:
    """Return every call with both times."""
    lines = [f"| {ranks} ranks | torch's gloo, us | rankwise, us | ratio |", "|---|---|---|---|"]
    for name, times in found.items():
        if "gloo" in times:
            theirs, ours = times["gloo"] * 1e6, times["rankwise"] * 1e6
            lines.append(f"| {name} | {theirs:,.0f} | {ours:,.0f} | {theirs / ours:.1f} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def _aims(found: dict[str, Times], ranks: int) -> str:
    """Return for each kind of call the mean of its ratios, the least of them, and what was wanted."""
    lines = [f"| {ranks} ranks | mean | least | wanted | |", "|---|---|---|---|---|"]
    for kind, aims in AIMS.items():
        ratios = {name: times["gloo"] / times["rankwise"] for name, times in found.items() if kind in _kinds(name)}
        if not ratios:
            continue
        mean, odd = statistics.geometric_mean(ratios.values()), min(ratios, key=lambda name: ratios[name])
        wanted = aims[ranks > 2]
        least_wanted = LEAST if kind.startswith("calls") else 0
        reached = "reached" if mean >= wanted and ratios[odd] >= least_wanted else "missed"
        least = f"{ratios[odd]:.1f}x ({odd})" if len(ratios) > 1 else ""
        lines.append(f"| {kind} | {mean:.1f}x | {least} | {wanted:g}x | {reached} |")
    bridge = found.get("bridge")
    if bridge:
        ours, called, torchs = (bridge[name] * 1e6 for name in ("rankwise", "group", "torch"))
        reached = "reached" if called - ours <= BRIDGE_US else "missed"
        lines.append(
            f"| the bridge adds to our own call of 8 B | {called - ours:.1f} us | | {BRIDGE_US} us | {reached} |"
        )
        lines.append(f"| torch's Python adds to that | {torchs - called:.1f} us | | | |")
    return "\n".join(lines) if len(lines) > 2 else ""


def _kinds(name: str) -> set[str]:
    """Return the kinds of calls of `AIMS` that a case is of."""
    if name.startswith("broadcast_object_list"):
        return {"broadcast_object_list"}
    size = " ".join(name.split()[-2:])
    if name in AIMS:
        return {name}
    return {"calls of 8 B to 64 KiB"} if size in SMALL else {"calls of 1 to 64 MiB"} if size in LARGE else set()


def _told_of_beginnings(times: Times) -> str:
    return (
        f"The first `init_process_group` of a process, a world of one, takes {times['gloo'] * 1e3:.1f} ms with "
        f"torch's gloo and {times['rankwise'] * 1e3:.1f} ms with rankwise."
    )


def _aim_of_beginnings(times: Times) -> str:
    ours, limit = times["rankwise"] * 1e6, 1.5 * times["gloo"] * 1e6 + BEGINNING_US
    reached = "reached" if ours <= limit else "missed"
    return f"The first `init_process_group` of a process: {ours / 1e3:.1f} ms; wanted {limit / 1e3:.1f} ms: {reached}."


# ---------------------------------------------------------------------- what is measured


def launch(program: str, ranks: int, *words: str) -> Any:
    """Start a benchmark's ranks, and return what the first of them has left in the file `found` of their folder."""
    with tempfile.TemporaryDirectory() as folder:
        own = [sys.executable, program, "--ranks", str(ranks), *words, "--folder", folder, "--rank"]
        processes = [subprocess.Popen([*own, str(rank)]) for rank in range(ranks)]
        try:
            if any(process.wait(timeout=900) for process in processes):
                raise SystemExit("a rank has failed")
        finally:
            for process in processes:
                process.kill()
        return json.loads(Path(folder, "found").read_text(encoding="utf-8"))


def _measure(given: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist

    import rankwise_torch  # noqa: F401 - registers the name

    torch.set_num_threads(1)
    size, place = given.ranks[0], f"file://{given.folder}/store"
    dist.init_process_group("gloo", init_method=place, rank=given.rank, world_size=size)
    groups = {"gloo": dist.group.WORLD, "rankwise": dist.new_group(backend="rankwise")}
    found: dict[str, Times] = {}
    for name, make in _cases(torch, dist).items():
        if given.only in name:
            found[name] = in_turns(dist, {whose: make(group) for whose, group in groups.items()})
            if given.rank == 0:
                theirs, ours = found[name]["gloo"] * 1e6, found[name]["rankwise"] * 1e6
                print(f"{size} ranks  {name:34} {theirs:10.1f} us {ours:10.1f} us {theirs / ours:6.2f} x", flush=True)
    alone = dist.new_group([0], backend="rankwise")
    if given.rank == 0:
        if given.only in "bridge":
            found["bridge"] = _bridge(torch, dist, alone)
        Path(given.folder, "found").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def _bridge(torch, dist, alone) -> Times:
    """Return how long a call of 8 B takes through torch, on the group of torch, and on ours; in a group of one.

    Nobody waits for anybody there, so all that makes a block slower than the fastest is other work of the machine.
    """
    import numpy as np

    import rankwise

    tensor, array, options = torch.ones(2), np.ones(2, np.float32), dist.AllreduceOptions()
    options.asyncOp = False
    calls = {
        "torch": lambda: dist.all_reduce(tensor, group=alone),
        "group": lambda: alone.allreduce([tensor], options),
        "rankwise": lambda: rankwise.all_reduce(array, group=alone.under),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(200):
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(50):
                call()
            times[name].append((time.perf_counter() - begin) / 50)
    return {name: min(each) for name, each in times.items()}


def _cases(torch, dist):
    cases = {}
    for label, count in SIZES.items():
        cases[f"all_reduce {label}"] = lambda g, n=count: _with(torch.ones(n), lambda x: dist.all_reduce(x, group=g))
        cases[f"broadcast {label}"] = lambda g, n=count: _with(torch.ones(n), lambda x: dist.broadcast(x, 0, group=g))
        cases[f"all_gather {label}"] = lambda g, n=count: _gathering(torch, dist, g, n)
        cases[f"reduce_scatter_single {label}"] = lambda g, n=count: _scattering(torch, dist, g, n)
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
    return lambda: dist.reduce_scatter_single(output, whole, group=group)


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
    return step_of(torch, model, width)


def step_of(torch, model, width):
    """Return what takes a step of training a model."""
    optimizer, inputs = torch.optim.SGD(model.parameters(), 0.01), torch.ones(4, width)

    def step():
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def in_turns(dist, calls):
    """Return the median time of each call in seconds, measured in blocks that take turns."""
    times = {whose: [] for whose in calls}
    for call in calls.values():
        call(), call()
    count = _count(dist, next(iter(calls.values())))
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
    """Return how long the first init of a process takes, in worlds of one.

    One of each is not counted: it leaves the bytecode of all modules, which an installation brings and a clone lacks.
    """
    program = (
        "import sys, time, torch, torch.distributed as dist, rankwise_torch\n"
        "begin = time.perf_counter()\n"
        "dist.init_process_group(sys.argv[1], store=dist.HashStore(), rank=0, world_size=1)\n"
        "print(time.perf_counter() - begin)\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    times = {"gloo": [], "rankwise": []}
    for _ in range(6):
        for whose, each in times.items():
            command = [sys.executable, "-c", program, whose]
            found = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
            each.append(float(found.stdout.split()[-1]))
    return {whose: statistics.median(each[1:]) for whose, each in times.items()}


if __name__ == "__main__":
    main()
