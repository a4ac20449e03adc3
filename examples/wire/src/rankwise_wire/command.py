"""`rankwise wire`: what a message takes on this machine."""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np

import rankwise as dist
from rankwise_wire.options import Family, Options

DESCRIPTION = "Measure what messages of several sizes take between two ranks of this machine."

EXAMPLES = """\
examples:
  rankwise wire
  rankwise wire --family tcp --rounds 1000"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("--family", choices=["unix", "tcp"], default="unix", help="the kind of sockets (default: unix)")
    parser.add_argument("--rounds", type=int, default=200, metavar="N", help="how often each is sent (default: 200)")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    dist.spawn(measure, (options.family, options.rounds), nprocs=2)
    return 0


def measure(rank: int, family: Family, rounds: int) -> None:
    """Play ping-pong on two ranks, and print half of what a round takes for each size."""
    dist.init_process_group("wire", pg_options=Options(family=family))
    peer = 1 - rank
    for nbytes in (8, 4096, 1 << 20):
        array = np.zeros(nbytes, np.uint8)
        dist.barrier()
        began = perf_counter()
        for _ in range(rounds):
            for sender in (0, 1):
                dist.send(array, peer) if rank == sender else dist.recv(array, peer)
        if rank == 0:
            print(f"{nbytes:9} bytes  {(perf_counter() - began) / rounds / 2 * 1e6:9.1f} us")
    dist.destroy_process_group()
