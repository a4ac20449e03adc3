"""Steps of training over rankwise and over torch's gloo, in turns: plain, compiled, and with FSDP2.

    python benchmarks/torch_steps.py [--ranks 2 4] [--write docs/torch.md]

Prints the median time of a step for each, and of one without a group. Run it where nothing else runs; it takes some
two minutes, most of which torch compiles.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pages
import torch_compare

#: By the bytes of parameters: the width of layers, and their number.
MODELS = {"100 KB": (80, 4), "10 MB": (800, 4)}
KINDS = ("DDP", "DDP, compiled", "FSDP2")
#: Steps of each rank for itself, for what torch takes to compute and what compiling changes there.
ALONE = ("no group", "no group, compiled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--write", type=Path, help="a page to put the figures in")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        _measure(given.rank, given.ranks[0], given.folder)
        return
    text = "\n\n".join(
        table for ranks in given.ranks for table in _tables(torch_compare.launch(__file__, ranks), ranks)
    )
    print(text)
    if given.write:
        pages.put_into(given.write, text, "steps")


def _tables(found: dict[str, torch_compare.Times], ranks: int) -> tuple[str, str]:
    return _table(found, ranks), _compiling(found, ranks)


def _table(found: dict[str, torch_compare.Times], ranks: int) -> str:
    lines = [f"| a step on {ranks} ranks | torch's gloo, us | rankwise, us | ratio |", "|---|---|---|---|"]
    for name, times in found.items():
        told = [f"{each * 1e6:,.0f}" for each in times.values()]
        told += [f"{times['gloo'] / times['rankwise']:.1f}" if len(times) > 1 else ""]
        lines.append(f"| {name} of parameters | {' | '.join(['-', *told] if len(times) == 1 else told)} |")
    return "\n".join(lines)


def _compiling(found: dict[str, torch_compare.Times], ranks: int) -> str:
    """Return what a compiled step takes of the time of a plain one; without a group, torch alone accounts for it."""
    lines = [f"| compiled against plain, {ranks} ranks | torch's gloo | rankwise | no group |", "|---|---|---|---|"]
    for label in MODELS:
        compiled, plain = (
            {**found[f"DDP{kind}, {label}"], **found[f"no group{kind}, {label}"]} for kind in (", compiled", "")
        )
        ratios = (f"{compiled[whose] / plain[whose]:.2f}" for whose in ("gloo", "rankwise", "alone"))
        lines.append(f"| {label} of parameters | {' | '.join(ratios)} |")
    return "\n".join(lines)


def _measure(rank: int, size: int, folder: Path) -> None:
    import torch
    import torch.distributed as dist

    import rankwise_torch  # noqa: F401 - registers the name

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    groups = {"gloo": dist.group.WORLD, "rankwise": dist.new_group(backend="rankwise")}
    found: dict[str, torch_compare.Times] = {}
    for label, (width, depth) in MODELS.items():
        cells = [(kind, whose) for kind in KINDS for whose in groups] + [(kind, "alone") for kind in ALONE]
        calls = {cell: _step(torch, cell[0], groups.get(cell[1]), width, depth) for cell in cells}
        for (kind, whose), time_s in torch_compare.in_turns(dist, calls).items():
            found.setdefault(f"{kind}, {label}", {})[whose] = time_s
    if rank == 0:
        Path(folder, "found").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def _step(torch, kind, group, width, depth):
    """Return what takes a step of training; the first step of a compiled one compiles it."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(depth)))
    if kind == "FSDP2":
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif group is not None:
        model = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    return torch_compare.step_of(torch, torch.compile(model) if "compiled" in kind else model, width)


if __name__ == "__main__":
    main()
