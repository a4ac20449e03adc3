"""Predictions beside measured times: fit a network between namespaces, and say by how much `rankwise explain` is off.

    sudo python benchmarks/predictions.py --hosts 2 4 8 --ranks 1 2 --mbit 1000

Each host is a network namespace with as many ranks, which print what `python -m rankwise_tools.fit` prints anywhere.
With more ranks than processors ranks wait for processors too, which the model does not know.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from namespaces import write_secret
from two_hosts import Hosts, forbidden

_PORT, _PATIENCE_S = "29402", 600


def fit(count: int, each: int, mbit: int, delay_ms: float, secret: Path) -> str:
    """Return what rank 0 of a job on so many hosts prints, with so many ranks on each."""
    with Hosts(count, delay_ms) as hosts:
        if mbit:
            hosts.limit(mbit)
        told = {"WORLD_SIZE": str(count * each), "MASTER_ADDR": hosts.addresses[0], "MASTER_PORT": _PORT}
        told |= {
            "RANKWISE_SOCKET_IFNAME": "eth0",
            "RANKWISE_GLOO_TRANSPORT": "auto",
            "RANKWISE_SECRET_FILE": str(secret),
        }
        ranks = [
            subprocess.Popen(
                hosts.command(rank // each, sys.executable, "-m", "rankwise_tools.fit"),
                env={**os.environ, **told, "RANK": str(rank)},
                stdout=subprocess.PIPE if rank == 0 else None,
                text=True,
            )
            for rank in range(count * each)
        ]
        try:
            printed, _ = ranks[0].communicate(timeout=_PATIENCE_S)
            if any(rank.wait(_PATIENCE_S) for rank in ranks):
                raise SystemExit("a rank has failed")
        finally:
            for rank in ranks:
                rank.kill()
    return printed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1], help="ranks on each host")
    parser.add_argument("--mbit", type=int, default=0, help="limit each link to so many megabits per second")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="delay what goes between two hosts")
    given = parser.parse_args()
    if reason := forbidden():
        raise SystemExit(f"no namespaces here: {reason}")
    errors = []
    with tempfile.TemporaryDirectory() as folder:
        secret = write_secret(Path(folder))
        for count, each in itertools.product(given.hosts, given.ranks):
            printed = fit(count, each, given.mbit, given.delay_ms, secret)
            print(printed, flush=True)
            found = re.findall(r"off by a factor of ([\d.]+) in the middle, ([\d.]+)", printed)
            errors += [(count, each, *found[0])] if found else []
    for count, each, middle, most in errors:
        print(f"{count} hosts of {each}: off by a factor of {middle} in the middle, {most} at most")


if __name__ == "__main__":
    main()
