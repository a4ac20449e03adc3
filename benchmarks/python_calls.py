"""Count the Python calls of one warm `all_reduce`, of 16 bytes or more, on every way that it may go.

    python benchmarks/python_calls.py                 # two hosts of two ranks are network namespaces, which need root
    python benchmarks/python_calls.py --names         # also where the calls are
    python benchmarks/python_calls.py --nbytes 1048576

A frame of Python is a call; calls of C are none. Every rank counts, and the table shows the most and the median: a rank
that waits looks around meanwhile, and is counted for that too, so each row is the least of many calls.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from namespaces import write_secret
from two_hosts import Hosts, forbidden

import rankwise as dist

WARM, COUNTED = 50, 60
PORT = 29471
#: The ways: how many hosts of how many ranks, and what the environment says.
WAYS = {
    "a world of one": (1, 1, {}),
    "one host": (1, 2, {"RANKWISE_GLOO_TRANSPORT": "shm"}),
    "TCP": (1, 2, {"RANKWISE_GLOO_TRANSPORT": "tcp"}),
    "two hosts of two ranks": (2, 2, {}),
}
TERMS: dict[str, dict[str, Any]] = {"plain": {}, "timeout=": {"timeout": 30.0}, "async_op=": {"async_op": True}}


def counted(terms: dict[str, Any], nbytes: int) -> Counter[str]:
    """Return the calls of that `all_reduce` which made the fewest."""
    array, best = np.zeros(nbytes // 4, np.float32), Counter[str]()
    calls: list[str] = []

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            calls.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_qualname}")  # type: ignore[attr-defined]

    for index in range(WARM + COUNTED):
        calls.clear()
        if index >= WARM:
            sys.setprofile(note)
        work = dist.all_reduce(array, **terms)
        if work is not None:
            work.wait()
        sys.setprofile(None)
        if index >= WARM and (not best or len(calls) < best.total()):
            best = Counter(calls)
        dist.barrier()
    return best


def rank(nbytes: int) -> None:
    """Print one line for each kind of call."""
    dist.init_process_group("gloo", timeout=60)
    for name, terms in TERMS.items():
        best = counted(terms, nbytes)
        print(f"{name}\t{best.total()}\t{' '.join(f'{where}*{count}' for where, count in best.most_common())}")
    dist.destroy_process_group()


def measure(way: str, compiled: bool, nbytes: int) -> dict[str, list[tuple[int, str]]]:
    """Return for each kind of call how many each rank has made, and which."""
    count, each, variables = WAYS[way]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hosts = stack.enter_context(Hosts(count)) if count > 1 else None
        secret = write_secret(folder)
        common = {
            **os.environ,
            **variables,
            "WORLD_SIZE": str(count * each),
            "MASTER_ADDR": hosts.addresses[0] if hosts else "127.0.0.1",
            "MASTER_PORT": str(PORT),
            "RANKWISE_SECRET_FILE": str(secret),
            "RANKWISE_NATIVE": "on" if compiled else "off",
        }
        command = [sys.executable, __file__, "--rank", "--nbytes", str(nbytes)]
        ranks = [
            subprocess.Popen(
                hosts.command(number // each, *command) if hosts else command,
                env={**common, "RANK": str(number)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(count * each)
        ]
        said = [process.communicate(timeout=120)[0].splitlines() for process in ranks]
    found: dict[str, list[tuple[int, str]]] = {}
    for name, total, names in (line.split("\t") for lines in said for line in lines):
        found.setdefault(name, []).append((int(total), names))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--names", action="store_true", help="also print where the calls are")
    parser.add_argument("--nbytes", type=int, default=16, help="how long the array is")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank(options.nbytes)
        return
    print(f"{'way':34}" + "".join(f"{name:>18}" for name in TERMS))
    for way, (count, _, _) in WAYS.items():
        if count > 1 and forbidden():
            print(f"{way:34} not here: {forbidden()}")
            continue
        for compiled in (False, True):
            found = measure(way, compiled, options.nbytes)
            shown = [f"{statistics.median(n for n, _ in found[name]):g}, {max(found[name])[0]}" for name in TERMS]
            print(f"{way + (', compiled parts' if compiled else ''):34}" + "".join(f"{text:>18}" for text in shown))
            for name in TERMS if options.names else ():
                print(f"    {name}: {max(found[name])[1]}")


if __name__ == "__main__":
    main()
