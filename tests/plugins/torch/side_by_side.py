"""Run programs of all kinds over torch's gloo and over rankwise, and say whose results differ.

    python side_by_side.py [WORDS...]

Runs the programs of `side_programs` whose names have one of the words; without words, all. The ranks of each backend
run all programs in turn, each with a default group of its own, and note what they return. On two ranks results must be
the same to the last bit, on more nearly. What differs is in `side_by_side.json`, with the row of docs/torch.md for it.
"""

import contextlib
import faulthandler
import fnmatch
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

KINDS = Path(__file__).with_name("side_programs")
#: By a pattern of programs' names: the row of docs/torch.md that names the difference.
DIFFERENT = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
BACKENDS = "gloo", "rankwise"
#: What a call, and what a whole program may take.
CALL_S, PROGRAM_S = 30, 120


def table():
    """Return all programs, by their names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch says of its own older parts
        for path in sorted(KINDS.glob("[!_]*.py")):
            importlib.import_module(f"side_programs.{path.stem}")
    from side_programs.table import PROGRAMS

    return PROGRAMS


def main(*words):
    """Run, and print what differs."""
    found = compare([name for name in table() if not words or any(word in name for word in words)])
    for name, (expected, (theirs, ours)) in found.items():
        print(f"{'named: ' + expected if expected else 'DIFFERENT'}: {name}\n  gloo     {theirs}\n  rankwise {ours}")
    wrong = [name for name, (expected, _) in found.items() if not expected]
    print(f"{len(wrong)} differences that docs/torch.md does not name: {', '.join(wrong) or 'none'}")
    return bool(wrong)


def compare(names):
    """Return the programs whose results differ: the row of the documentation if there is one, and both results."""
    programs = table()
    sizes = sorted({programs[name].size for name in names})
    noted = {}
    for size in sizes:
        some = [name for name in names if programs[name].size == size]
        began = time.monotonic()
        with ThreadPoolExecutor(len(BACKENDS)) as runs:
            theirs, ours = runs.map(lambda backend, some=some, size=size: run(backend, size, some), BACKENDS)
        noted |= {name: (theirs[name], ours[name]) for name in some}
        kinds = Counter(name.partition(":")[0] for name in some)
        print(
            f"{len(some)} programs of {len(kinds)} kinds on {size} ranks, {time.monotonic() - began:.0f} s", flush=True
        )
    found = {}
    for name, (theirs, ours) in noted.items():
        row = next((row for pattern, row in DIFFERENT.items() if fnmatch.fnmatchcase(name, pattern)), None)
        differs = not _alike(theirs, ours, _tolerance(name, programs[name].size))
        if differs or "{'raises'" in str(theirs):  # a program that fails on both is wrong itself
            found[name] = row if differs else None, (_short(theirs), _short(ours))
    return found


def _tolerance(name, size):
    """Return how much results may differ: on two ranks there is but one order of summation."""
    return 0 if size == 2 else 1e-2 if "bfloat16" in name else 1e-5


def _short(result):
    return str(result)[:700]


def _alike(one, other, tolerance):
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return all(_alike(a, b, tolerance) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return all(_alike(one[key], other[key], tolerance) for key in one)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance) or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and one == other


def run(backend, size, names):
    """Return for each program what each rank has noted, with as many starts of the ranks as it takes."""
    found = {}
    while len(found) < len(names):
        rest = names[len(found) :]
        with tempfile.TemporaryDirectory() as folder:
            ended = _start(backend, size, rest, folder)
        found |= dict(zip(rest, zip(*ended, strict=False), strict=False))
        if len(found) < len(names):
            found[names[len(found)]] = ({"raises": "a rank has died, or stood still"},)
    return {name: list(noted) for name, noted in found.items()}


def _start(backend, size, names, folder):
    """Return what each rank has noted of each program until all had ended, or one had died."""
    Path(folder, "names").write_text(json.dumps(names), encoding="utf-8")
    env = {**os.environ, "SIDE_FOLDER": folder, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "FATAL"}
    command = [sys.executable, __file__, "--rank", backend, str(size)]
    with open(Path(folder, "said"), "w+", encoding="utf-8") as said:
        ranks = [subprocess.Popen([*command, str(rank)], env=env, stdout=said, stderr=said) for rank in range(size)]
        try:
            codes = [rank.wait(PROGRAM_S * (len(names) + 1)) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        said.seek(0)
        if any(codes):
            print(said.read()[-3000:], file=sys.stderr)
    return [
        [json.loads(line) for line in Path(folder, f"noted{rank}").read_text(encoding="utf-8").splitlines()]
        for rank in range(size)
    ]


# ---------------------------------------------------------------------- what a rank does


def be_rank(backend, size, rank):
    """Run the programs, and note what they return, a line for each."""
    import torch
    import torch.distributed as dist

    import rankwise_torch  # noqa: F401 - registers the names

    torch.set_num_threads(1)
    place, size, rank = Path(os.environ["SIDE_FOLDER"]), int(size), int(rank)
    programs, names = table(), json.loads((place / "names").read_text(encoding="utf-8"))
    meeting = dist.FileStore(str(place / "store"), size)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False)
        meeting.set("port", str(store.port))
    else:
        store = dist.TCPStore("127.0.0.1", int(meeting.get("port")), size, is_master=False)
    with open(place / f"noted{rank}", "w", encoding="utf-8") as file:
        for number, name in enumerate(names):
            faulthandler.dump_traceback_later(PROGRAM_S, exit=True)
            result = _one(programs[name].call, backend, dist.PrefixStore(f"{number}/", store), rank, size)
            file.write(json.dumps(result) + "\n")
            file.flush()
    faulthandler.cancel_dump_traceback_later()
    store.set(f"left {rank}", "1")
    if rank == 0:  # which serves the store
        store.wait([f"left {other}" for other in range(size)])


def _one(program, backend, store, rank, size):
    """Return what a program returns, or how it fails."""
    import torch
    import torch.distributed as dist

    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=CALL_S))
    torch.manual_seed(0)
    try:
        result = noted(program())
    except Exception as error:
        result = {"raises": f"{type(error).__name__}: {error}"[:400]}
    _meet(store, "ended", size)
    with contextlib.suppress(Exception):  # a group that has failed
        dist.destroy_process_group()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    return result


def _meet(store, name, size):
    """Return when all ranks have come."""
    if store.add(name, 1) == size:
        store.set(f"{name} all", "1")
    store.wait([f"{name} all"], timedelta(seconds=PROGRAM_S))


def noted(value):
    """Return a value as JSON has it, with what tells one tensor from another."""
    import torch

    if isinstance(value, torch.Tensor):
        if hasattr(value, "to_local"):
            return ["dtensor", str(value.placements), list(value.shape), noted(value.to_local())]
        value = value.detach()
        if value.layout is not torch.strided:
            value = value.to_dense()
        plain = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
        kept = plain.to(torch.float64) if plain.is_floating_point() else plain
        return [str(value.dtype), list(value.shape), kept.flatten().tolist()]
    if isinstance(value, dict):
        return {str(key): noted(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [noted(each) for each in value]
    return value if isinstance(value, int | float | str | bool | None) else repr(value)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        be_rank(*sys.argv[2:])
        os._exit(0)
    sys.exit(main(*sys.argv[1:]))
