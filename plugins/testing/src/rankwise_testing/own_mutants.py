"""`rankwise conformance NAME --mutants`: mistakes planted in a backend of one's own, and how many the kit notices."""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rankwise.kits import registry
from rankwise_launch.toolbox import CommandError
from rankwise_testing.conformance import command
from rankwise_testing.mutants import Trial, mutants, try_all

#: How many are tried if nobody says.
MUTANTS = 20


def try_mutants(backend: str, limit: int, extra_args: Sequence[str]) -> int:
    """Try mutants of a backend's code in fast runs; return 1 if there are survivors, 2 if it fails by itself."""
    room = _room(backend)
    with tempfile.TemporaryDirectory(prefix="rankwise-mutants-") as folder:
        copy = Path(folder, room.name)
        shutil.copytree(room, copy) if room.is_dir() else shutil.copy(room, copy)
        every = mutants(copy)
        chosen = random.Random(backend).sample(every, min(limit, len(every)))
        print(
            f"{len(chosen)} of {len(every)} mutants of {room}, each in a fast run up to its first failure", flush=True
        )
        paths = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
        run = command(backend, extra_args=["-q", "-x", "--fast", "-p", "no:cacheprovider", *extra_args])
        count = try_all(chosen, [Trial(Path(folder), run, {**os.environ, "PYTHONPATH": os.pathsep.join(paths)})])
    if count is None:
        print(f"the kit fails on {backend!r} without a mutant", file=sys.stderr)
        return 2
    noticed = len(chosen) - count["survived"]
    print(f"the kit has noticed {noticed} of {len(chosen)} mutants, {count['timed out']} of them as nothing ended")
    return int(count["survived"] > 0)


def _room(backend: str) -> Path:
    """Return the package, or the module, that declares a backend's communicator."""
    name = registry.get(backend).create.__module__.partition(".")[0]
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise CommandError(f"the code of backend {backend!r}, module {name!r}, is in no file", 2)
    origin = Path(spec.origin)
    return origin.parent if spec.submodule_search_locations else origin
