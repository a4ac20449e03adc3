"""Count the Python calls of one warm call, of 16 bytes or more, on every way that it may go and on all terms.

    python benchmarks/python_calls.py                 # hosts of several ranks are network namespaces, which need root
    python benchmarks/python_calls.py --names         # also where the calls are
    python benchmarks/python_calls.py --nbytes 1048576

The calls are an `all_reduce`, fifty of them together, and an `isend` and an `irecv` between the first two ranks; of
what returns a work its wait is counted too. A frame of Python is a call; calls of C are none. Every rank counts, and
the table shows the most and the median: a rank that waits looks around meanwhile, and is counted for that too, so each
row is the least of many calls.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from namespaces import write_secret
from two_hosts import Hosts, forbidden

import rankwise as dist

WARM, COUNTED = 50, 60
PORT = 29471
#: The ways: on which host each rank is, and what the environment says.
WAYS: dict[str, tuple[list[int], dict[str, str]]] = {
    "a world of one": ([0], {}),
    "one host": ([0, 0], {"RANKWISE_GLOO_TRANSPORT": "shm"}),
    "TCP": ([0, 0], {"RANKWISE_GLOO_TRANSPORT": "tcp"}),
    "two hosts of two ranks": ([0, 0, 1, 1], {}),
    "hosts of one and three": ([0, 1, 1, 1], {}),
}
TOGETHER = 50
NAMES = ("plain", "timeout=", "timedelta", "async_op=", "coalesced", "isend", "irecv")


def made(nbytes: int) -> dict[str, Callable[[], Any]]:
    """Return what is counted, each a call of the program's."""
    array, pair = np.zeros(nbytes // 4, np.float32), dist.get_rank() if dist.get_world_size() > 1 else 2
    here, there = np.zeros_like(array), np.zeros_like(array)
    many = [np.zeros(4, np.float32) for _ in range(TOGETHER)]
    return {
        "plain": lambda: dist.all_reduce(array),
        "timeout=": lambda: dist.all_reduce(array, timeout=30),
        "timedelta": lambda: dist.all_reduce(array, timeout=timedelta(seconds=30)),
        "async_op=": lambda: dist.all_reduce(array, async_op=True),
        "coalesced": lambda: dist.all_reduce_coalesced(many),
        "isend": lambda: dist.isend(here, 1 - pair) if pair < 2 else None,
        "irecv": lambda: dist.irecv(there, 1 - pair) if pair < 2 else None,
    }


def counted(call: Callable[[], Any]) -> Counter[str]:
    """Return what that call has called which made the fewest."""
    best = Counter[str]()
    calls: list[str] = []

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            calls.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_qualname}")  # type: ignore[attr-defined]

    for index in range(WARM + COUNTED):
        calls.clear()
        if index >= WARM:
            sys.setprofile(note)
        work = call()
        if work is not None:
            work.wait()
        sys.setprofile(None)
        if index >= WARM and (not best or len(calls) < best.total()):
            best = Counter(calls[1:])  # the first is that of what is counted
        dist.barrier()
    return best


def rank(nbytes: int) -> None:
    """Print one line for each kind of call."""
    dist.init_process_group("gloo", timeout=60)
    for name, call in made(nbytes).items():
        best = counted(call)
        print(f"{name}\t{best.total()}\t{' '.join(f'{where}*{count}' for where, count in best.most_common())}")
    dist.destroy_process_group()


def measure(way: str, compiled: bool, nbytes: int) -> dict[str, list[tuple[int, str]]]:
    """Return for each kind of call how many each rank has made, and which."""
    where, variables = WAYS[way]
    count = len(set(where))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hosts = stack.enter_context(Hosts(count)) if count > 1 else None
        secret = write_secret(folder)
        common = {
            **os.environ,
            **variables,
            "WORLD_SIZE": str(len(where)),
            "MASTER_ADDR": hosts.addresses[0] if hosts else "127.0.0.1",
            "MASTER_PORT": str(PORT),
            "RANKWISE_SECRET_FILE": str(secret),
            "RANKWISE_NATIVE": "on" if compiled else "off",
        }
        command = [sys.executable, __file__, "--rank", "--nbytes", str(nbytes)]
        ranks = [
            subprocess.Popen(
                hosts.command(host, *command) if hosts else command,
                env={**common, "RANK": str(number)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for number, host in enumerate(where)
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
    print(f"{'way':40}" + "".join(f"{name:>11}" for name in NAMES))
    for way, (where, _) in WAYS.items():
        if len(set(where)) > 1 and forbidden():
            print(f"{way:40} not here: {forbidden()}")
            continue
        for compiled in (False, True):
            found = measure(way, compiled, options.nbytes)
            shown = [f"{statistics.median(n for n, _ in found[name]):g}, {max(found[name])[0]}" for name in NAMES]
            print(f"{way + (', compiled parts' if compiled else ''):40}" + "".join(f"{text:>11}" for text in shown))
            for name in NAMES if options.names else ():
                print(f"    {name}: {max(found[name])[1]}")


if __name__ == "__main__":
    main()
