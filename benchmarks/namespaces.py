"""Time the gloo backend of rankwise beside torch's gloo between two hosts: network namespaces joined by a veth pair.

    sudo python benchmarks/namespaces.py --json result.json            # the link as fast as the machine
    sudo python benchmarks/namespaces.py --mbit 1000 --sizes 4194304   # a link of 1 Gbit/s, and the overlap on it

Both run in one session, alternating, on fresh data; figures are medians over the alternations of the mean time of one
call on rank 0. On a limited link the table also tells which part of the wire's limit was reached, and what an
asynchronous all_reduce of 16 MiB beside NumPy work of the same length costs, compared to one after the other.
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
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import gloo_compare
import numpy as np
from two_hosts import Hosts, forbidden

OPS = ("all_reduce", "broadcast", "send_recv")
OVERLAP_NBYTES = 16 << 20
_PORT = 29401


def overlap(contender: str, calls: int = 5) -> None:
    """Be one rank: time an all_reduce, NumPy work that takes as long, and both at once; rank 0 prints what it found."""
    us = gloo_compare.CONTENDERS[contender]()
    array = us.array(np.zeros(OVERLAP_NBYTES // 4, np.float32))
    a, b = np.ones(1 << 16, np.float32), np.ones(1 << 16, np.float32)

    def compute(repeat: int) -> None:
        for _ in range(repeat):
            np.add(a, b, out=b)

    compute(1000)
    start = time.perf_counter()
    compute(1000)
    once = (time.perf_counter() - start) / 1000
    us.dist.all_reduce(array)
    alone = _median(calls, lambda: us.dist.all_reduce(array), us.barrier)
    shared = us.array(np.array([alone / once]))
    us.dist.broadcast(shared, 0)
    repeat = int(shared[0])

    def both() -> None:
        work = us.dist.all_reduce(array, async_op=True)
        compute(repeat)
        work.wait()

    def in_turn() -> None:
        us.dist.all_reduce(array)
        compute(repeat)

    sequence, together = _median(calls, in_turn, us.barrier), _median(calls, both, us.barrier)
    if us.rank == 0:
        print(json.dumps({"alone": alone, "in turn": sequence, "together": together}), flush=True)
    us.close()


def _median(calls: int, call: object, barrier: object) -> float:
    times = []
    for _ in range(calls):
        barrier()  # type: ignore[operator]
        start = time.perf_counter()
        call()  # type: ignore[operator]
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def launch(
    hosts: Hosts, contender: str, secret: Path, command: list[str], python: str = sys.executable
) -> dict[str, float]:
    """Run one rank on each host, and return what rank 0 has found."""
    env = {
        **os.environ,
        "WORLD_SIZE": str(len(hosts.names)),
        "MASTER_ADDR": hosts.addresses[0],
        "MASTER_PORT": str(_PORT),
        "GLOO_SOCKET_IFNAME": "eth0",
        "RANKWISE_GLOO_TRANSPORT": "tcp",
        "RANKWISE_SECRET_FILE": str(secret),
    }
    processes = [
        subprocess.Popen(
            hosts.command(rank, python, *command),
            env={**env, "RANK": str(rank)},
            stdout=subprocess.PIPE if rank == 0 else None,
            text=True,
        )
        for rank in range(len(hosts.names))
    ]
    try:
        output, _ = processes[0].communicate(timeout=600)
        if any(process.wait(60) for process in processes):
            raise SystemExit(f"{contender} has failed")
    finally:
        for process in processes:
            process.kill()
    return dict(json.loads(output.splitlines()[-1]))


def write_secret(folder: Path) -> Path:
    """Return a new file with a job secret."""
    secret = folder / "secret"
    secret.write_text(os.urandom(32).hex())
    secret.chmod(0o600)
    return secret


def ratios(results: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    """Return how many times faster rankwise is than gloo, by call and size."""
    ours, theirs = results["rankwise"], results["torch"]
    return {key: _middle(theirs, key) / _middle(ours, key) for key in ours[0]}


def report(results: dict[str, list[dict[str, float]]], mbit: int) -> str:
    """Return the table, and what follows from it."""
    lines = [gloo_compare.table(results)]
    if "torch" in results:
        found = ratios(results)
        worst = min(found, key=found.__getitem__)
        lines.append(f"geometric mean of the ratios {statistics.geometric_mean(found.values()):.2f}x,")
        lines[-1] += f" the least {found[worst]:.2f}x ({worst})"
    if mbit:
        for name, runs in results.items():
            for key in runs[0]:
                nbytes = int(key.split("/")[1])
                if nbytes >= 1 << 20:
                    share = nbytes * 8 / (mbit * 1e6) / _middle(runs, key)
                    lines.append(f"{name} {key}: {share:.1%} of the wire's {mbit} Mbit/s")
    return "\n\n".join(lines)


def _middle(runs: list[dict[str, float]], key: str) -> float:
    return statistics.median(run[key] for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--ops", nargs="+", default=list(OPS), choices=gloo_compare.OPS)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(gloo_compare.SIZES), help="bytes of the array")
    parser.add_argument("--contenders", nargs="+", default=["rankwise", "torch"], choices=["rankwise", "torch"])
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--budget", type=float, default=0.1, help="seconds for each figure of each alternation")
    parser.add_argument("--mbit", type=int, default=0, help="limit the link to so many megabits per second")
    # What Linux takes unless it is told otherwise. BBR measures some microseconds of round trip between namespaces, and
    # then leaves the link idle for some percent of the time, in either library.
    parser.add_argument("--congestion", default="cubic", help="TCP's congestion control")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--overlap", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.overlap:
        overlap(given.overlap)
        return
    reason = forbidden()
    if reason:
        raise SystemExit(f"no namespaces here: {reason}")
    present = [name for name in given.contenders if find_spec(gloo_compare.NEEDS[name]) is not None]
    program = [str(Path(gloo_compare.__file__)), "--ops", *given.ops, "--sizes", *map(str, given.sizes)]
    program += ["--budget", str(given.budget), "--work"]
    results: dict[str, list[dict[str, float]]] = defaultdict(list)
    overlaps: dict[str, list[dict[str, float]]] = defaultdict(list)
    with Hosts(2) as hosts, tempfile.TemporaryDirectory() as folder:
        secret = write_secret(Path(folder))
        hosts.control_congestion(given.congestion)
        if given.mbit:
            hosts.limit(given.mbit)
        for _ in range(given.alternations):
            for name in present:
                results[name].append(launch(hosts, name, secret, [*program, name]))
                if given.mbit:
                    overlaps[name].append(launch(hosts, name, secret, [__file__, "--overlap", name]))
    print(report(results, given.mbit))
    for name, runs in overlaps.items():
        parts = [_middle(runs, key) for key in ("alone", "in turn", "together")]
        print(f"\n{name}: all_reduce of 16 MiB {parts[0] * 1e3:.0f} ms; with work of the same length in turn", end=" ")
        print(f"{parts[1] * 1e3:.0f} ms, together {parts[2] * 1e3:.0f} ms: {parts[2] / parts[1]:.0%}")
    if given.json:
        facts = {"machine": list(os.uname()), "processors": os.cpu_count(), "mbit": given.mbit}
        given.json.write_text(json.dumps({**facts, "results": results, "overlap": overlaps}, indent=1))


if __name__ == "__main__":
    main()
