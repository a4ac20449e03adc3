"""Begin with more ranks than a machine has processes for: many in a process, each in a thread and a world of its own.

    python benchmarks/simulated_ranks.py 1000
    python benchmarks/simulated_ranks.py 1000 --processes 16

Prints how long it takes from the first rank's call of `init_process_group` to the last one's end of the first barrier,
and how many requests to the store a rank makes beside its heartbeats. Rank 0, which serves the store, has a process of
its own, as every rank of a job has. The ranks of the other processes take turns at one interpreter; so that this is not
taken for hanging, silence counts only after two minutes here.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import Any

TIMEOUT_S = 300
STACK_NBYTES = 512 * 1024


def ranks(address: str, first: int, count: int, size: int) -> None:
    """Be some ranks, and print what it has cost them."""
    import rankwise as dist
    from rankwise.groups.world import World, use
    from rankwise_stores.tcp.connection import Connection

    asked: Counter[str] = Counter()
    ask = Connection._ask

    def noted(self: Connection, name: str, *args: object) -> None:
        asked[name] += 1
        ask(self, name, *args)  # type: ignore[arg-type]

    Connection._ask = noted  # type: ignore[method-assign]

    def failed(args: threading.ExceptHookArgs) -> None:
        sys.excepthook(args.exc_type, args.exc_value or SystemExit(), args.exc_traceback)
        os._exit(1)  # the others would wait for it

    threading.excepthook = failed
    together, found = threading.Barrier(count), []

    def one(rank: int) -> None:
        use(World())
        began = time.time()
        dist.init_process_group("gloo", address, rank=rank, world_size=size, timeout=TIMEOUT_S)
        dist.barrier()
        found.append((began, time.time()))
        together.wait()
        if rank == first:
            del asked["set_and_peek"]
            row = [min(began for began, _ in found), max(end for _, end in found), asked.total(), time.process_time()]
            print(json.dumps(row), flush=True)
            sys.stdin.read()  # until all processes have told: what follows is an end, and no beginning
            os._exit(0)
        threading.Event().wait()

    threading.stack_size(STACK_NBYTES)
    sys.setswitchinterval(0.1)  # else each of hundreds of threads that wait for the interpreter wakes up every 5 ms
    for rank in range(first, first + count):
        threading.Thread(target=one, args=(rank,), daemon=True).start()
    threading.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("ranks", type=int)
    parser.add_argument("--processes", type=int, default=8, help="for all ranks but the first")
    parser.add_argument("--of", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.of:
        address, first, count = given.of
        ranks(address, int(first), int(count), given.ranks)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    each = -(-(given.ranks - 1) // given.processes)
    firsts = [0, *range(1, given.ranks, each)]
    env = {**os.environ, "RANKWISE_HEARTBEAT_LIMIT_S": "120"}
    started: list[Any] = []
    for first, end in zip(firsts, [*firsts[1:], given.ranks], strict=True):
        count = end - first
        command = [sys.executable, __file__, str(given.ranks), "--of", address, str(first), str(count)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started.append(subprocess.Popen(command, env=env, text=True, **pipes))  # type: ignore[call-overload]
    try:
        rows = [json.loads(process.stdout.readline()) for process in started]
    finally:
        for process in started:
            process.kill()
    began, ended, asked, used = zip(*rows, strict=True)
    print("| ranks | processes | beginning and first barrier (s) | requests a rank | processor (ms a rank) |")
    print("| --- | --- | --- | --- | --- |")
    took, requests, processor_ms = max(ended) - min(began), sum(asked) / given.ranks, 1e3 * sum(used) / given.ranks
    print(f"| {given.ranks} | {given.processes} | {took:.1f} | {requests:.1f} | {processor_ms:.0f} |")


if __name__ == "__main__":
    main()
