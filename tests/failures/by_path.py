"""Compare how calls fail on each path: `python tests/failures/by_path.py`.

Every failure of every public call, made for the first time and warm, short and long, over TCP and through memory,
compiled and not: the same type and the same words on all paths, and for what concerns all ranks on all ranks that are
left. It prints what differs, and how much was compared; exit code 1 if anything does. Some 20 minutes for all.

    --only time-out,all_reduce    only what has one of these words
    --paths shm,shm-python        only these paths, of which the first is compared with the others
    --sample 40                   so many at random
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from busy_machine import slowness
from by_reference import command
from failing_calls import DEATH, MESSAGES, SHARED, Cell, all_of, cells, die, key
from far_away import RANKS_A_HOST

from rankwise_testing import RankPool

PATHS = {
    "shm-python": {"RANKWISE_GLOO_TRANSPORT": "shm", "RANKWISE_NATIVE": "off"},
    "shm": {"RANKWISE_GLOO_TRANSPORT": "shm", "RANKWISE_NATIVE": "on"},
    "copied": {"RANKWISE_GLOO_TRANSPORT": "shm", "RANKWISE_GLOO_PEER_MEMORY": "off", "RANKWISE_NATIVE": "on"},
    "tcp-python": {"RANKWISE_GLOO_TRANSPORT": "tcp", "RANKWISE_NATIVE": "off"},
    "tcp": {"RANKWISE_GLOO_TRANSPORT": "tcp", "RANKWISE_NATIVE": "on"},
    # Of the three ranks two share a host.
    "hosts-python": {RANKS_A_HOST: "2", "RANKWISE_NATIVE": "off"},
    "hosts": {RANKS_A_HOST: "2", "RANKWISE_NATIVE": "on"},
}
#: So many paths are tried at once.
_AT_ONCE = 3
#: What ranks may say of a failure, by cell.
Ends = dict[Cell, list[Any]]


def ends_on(path: str, listed: Sequence[Cell], slower: float = 1.0) -> Ends:
    """Return how calls end on a path, on each rank; where others work too, time-outs are so many times longer."""
    return ends_in(PATHS[path], listed, slower)


def ends_in(
    env: Mapping[str, str],
    listed: Sequence[Cell],
    slower: float,
    all_of: Callable[..., list[Any]] = all_of,
    die: Callable[..., None] = die,
) -> Ends:
    """Return how calls end in an environment, by what makes them fail there."""
    ends = {}
    alive = [cell for cell in listed if cell[0] != DEATH]
    if alive:
        with RankPool(3, env=env) as pool:
            found = pool.run(all_of, alive, slower, timeout=slower * (60 + 4 * len(alive)))
            ends = dict(zip(alive, zip(*found, strict=True), strict=True))
    for cell in listed:
        if cell[0] == DEATH:
            ends[cell] = _survivors(die, cell, env, slower)
    return {cell: list(said) for cell, said in ends.items()}


def _survivors(die: Callable[..., None], cell: Cell, env: Mapping[str, str], slower: float) -> list[Any]:
    """Return how a call ends on those that outlive another; a pool would have ended their groups itself."""
    with tempfile.TemporaryDirectory() as folder:
        common = {**os.environ, **env, "WORLD_SIZE": "3"}
        common["PYTHONPATH"] = os.pathsep.join(sys.path)
        words = command(die, cell, folder, slower)
        ranks = [subprocess.Popen(words, env={**common, "RANK": str(r)}, stdout=subprocess.DEVNULL) for r in range(3)]
        for rank in ranks:
            try:
                rank.wait(60 * slower)
            finally:
                rank.kill()
        return [pickle.loads(file.read_bytes()) for file in sorted(Path(folder).glob("?"))]


def compare(paths: Sequence[str], listed: Sequence[Cell]) -> list[str]:
    """Return what differs."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # most of the time ranks wait
        slower = slowness()
        found = dict(zip(paths, pool.map(lambda path: ends_on(path, listed, slower), paths), strict=True))
    texts = []
    for cell in listed:
        for path in paths:
            said = [text for text in found[path][cell] if text]
            if cell[0] in SHARED and cell[1] not in MESSAGES and len(set(said)) != 1:
                texts.append(f"{key(cell)} on {path}: the ranks differ:" + "".join(f"\n    {text}" for text in said))
            if not said or "nothing" in said or any(not _is_public(text) for text in said):
                texts.append(f"{key(cell)} on {path}: " + "".join(f"\n    {text}" for text in said or ["not a word"]))
            first = found[paths[0]][cell]
            if found[path][cell] != first:
                pairs = zip(first, found[path][cell], strict=False)
                lines = [f"\n    {paths[0]}: {a}\n    {path}: {b}" for a, b in pairs if a != b]
                texts.append(f"{key(cell)}: the paths differ:" + "".join(lines))
    return texts


def _is_public(text: str) -> bool:
    return text.startswith(("rankwise.errors.", "builtins.TypeError", "builtins.ValueError"))


def main() -> int:
    """Compare what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--paths", default=",".join(PATHS))
    parser.add_argument("--sample", type=int, default=0)
    options = parser.parse_args()
    listed, paths = cells(options.only), options.paths.split(",")
    if options.sample:
        listed = random.sample(listed, min(options.sample, len(listed)))
    differences = 0
    for failure in dict.fromkeys(cell[0] for cell in listed):
        together = [cell for cell in listed if cell[0] == failure]
        texts = compare(paths, together)
        differences += len(texts)
        print(*texts, f"{failure}: {len(together)} calls, {len(texts)} differences", sep="\n", flush=True)
    print(f"{len(listed)} failures on {len(paths)} paths: {differences or 'no'} difference{'s' * (differences > 1)}")
    return bool(differences)


if __name__ == "__main__":
    sys.exit(main())
