"""Tell what a beginning costs each of many ranks on this machine.

    python benchmarks/beginnings.py 64 256
    python benchmarks/beginnings.py 64 --plain
    python benchmarks/beginnings.py 64 --alone
    python benchmarks/beginnings.py 32 160 --times 200

For each number of ranks: requests to the store, processor time and descriptors of a rank, its memory (PSS), and how
long the beginning took it; then the time from the launch, and from the moment at which the last rank had imported its
modules, until the last has left the first barrier. Ranks are forked from a process that has imported everything
(`--preload numpy,rankwise`); with `--plain` each imports by itself. Memory and descriptors are those a second after the
first barrier, when what only the beginning needed has been closed. With `--times` they begin again and again, and what
is printed is how many beginnings have worked, and the first line of why one has not.

With `--alone` there is no launcher. As under mpiexec ranks are interpreters of their own and rank 0 serves the store;
they have imported rankwise and nothing else, and begin together. Nothing counts their requests, which would load what
makes them. The processor time of all ranks also tells something on a busy machine.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # nothing that ranks import before it is free
    import subprocess

TIMEOUT_S = 240
#: How long after the first barrier memory and descriptors are looked at.
REST_S = 1.0
#: When the launcher was started, for its ranks.
LAUNCHED = "LAUNCHED_AT"
#: Says to ranks that they begin together, once a line has told them when.
TOGETHER = "BEGIN_TOGETHER"


def noted() -> list[str]:
    """Return the list of requests to the store, which loads what makes them."""
    from rankwise_stores.tcp.connection import Connection

    asked, ask = [], Connection._ask

    def note(self: Connection, name: str, *args: object) -> None:
        asked.append(name)
        ask(self, name, *args)  # type: ignore[arg-type]

    Connection._ask = note  # type: ignore[method-assign]
    return asked


def rank() -> None:
    """Be one rank, and on rank 0 print the figures of all."""
    import numpy  # noqa: F401

    import rankwise as dist

    if TOGETHER in os.environ:
        print("ready", flush=True)
        os.environ[LAUNCHED] = sys.stdin.readline()
    imported_at = time.time()
    asked = None if TOGETHER in os.environ else noted()
    used, began = time.process_time(), time.perf_counter()
    dist.init_process_group("gloo", timeout=TIMEOUT_S)
    took, used = time.perf_counter() - began, time.process_time() - used
    requests = float("nan") if asked is None else sum(name != "set_and_peek" for name in asked)
    dist.barrier()
    left_at = time.time()
    time.sleep(REST_S)
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        pss = next(int(line.split()[1]) / 1024 for line in file if line.startswith("Pss:"))
    rows: list[tuple[float, ...]] = [()] * dist.get_world_size()
    mine = requests, 1e3 * used, len(os.listdir("/proc/self/fd")), pss, took, imported_at, left_at
    dist.all_gather_object(rows, mine)
    if dist.get_rank() == 0:
        import statistics  # nothing that ranks import before it is free

        *_, imported, left = map(max, zip(*rows, strict=True))
        rows = [row[:-2] for row in rows]
        middle = [statistics.median(column) for column in zip(*rows, strict=True)]
        most = [max(column) for column in zip(*rows[1:], strict=True)]
        for name, figures in (("middle", middle), ("most, but for rank 0", most), ("rank 0", rows[0])):
            print(f"| {len(rows)} | {name} | " + " | ".join(f"{x:.4g}" for x in figures) + " |", flush=True)
        times = left - float(os.environ[LAUNCHED]), left - imported, sum(row[1] for row in rows) / 1e3
        told = "launch to barrier {:.2f} s, last import to barrier {:.2f} s, processor time of all {:.2f} s"
        print(f"| {len(rows)} | {told.format(*times)} |", flush=True)
    dist.destroy_process_group()


def begin(count: int, preload: list[str]) -> subprocess.CompletedProcess[str]:
    """Have so many ranks begin, and print their figures."""
    import subprocess

    command = [sys.executable, "-m", "rankwise", "run", "-n", str(count), *preload, __file__]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env[LAUNCHED] = str(time.time())
    return subprocess.run(command, check=False, timeout=TIMEOUT_S, capture_output=True, text=True, env=env)


def begin_alone(count: int) -> subprocess.CompletedProcess[str]:
    """Have so many ranks begin together that no launcher has started, and print their figures."""
    import socket
    import subprocess

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env |= {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), TOGETHER: "1"}
    command = [sys.executable, __file__]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    ranks = [
        subprocess.Popen(command, env={**env, "RANK": str(rank)}, text=True, **pipes)  # type: ignore[call-overload]
        for rank in range(count)
    ]
    try:
        for process in ranks:
            process.stdout.readline()
        for process in ranks:
            process.stdin.write(f"{time.time()}\n")
            process.stdin.flush()
        said = "".join(process.communicate(timeout=TIMEOUT_S)[0] for process in ranks)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return subprocess.CompletedProcess(command, max(abs(process.returncode) for process in ranks), said, "")


def trouble(done: subprocess.CompletedProcess[str], count: int) -> str:
    """Return why a beginning has not worked; nothing if it has."""
    wrong = [line for line in done.stderr.splitlines() if "Error" in line]
    if done.returncode == 0 and not wrong and f"| {count} | launch to barrier" in done.stdout:
        return ""
    return (wrong or done.stderr.splitlines() or [""])[0][:200] or f"exit code {done.returncode}"


def begin_often(count: int, times: int, preload: list[str]) -> None:
    """Begin so often, and print how many beginnings have worked."""
    import subprocess

    troubles = []
    for done in range(1, times + 1):
        try:
            troubles.append(trouble(begin(count, preload), count))
        except subprocess.TimeoutExpired:
            troubles.append(f"not done within {TIMEOUT_S} s")
        if done in (*range(50, times, 50), times):  # it may take long
            why = next(filter(None, troubles), "")
            print(f"{count} ranks: {troubles.count('')} of {done} beginnings worked{why and f'; {why}'}", flush=True)


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("ranks", type=int, nargs="+")
    parser.add_argument("--plain", action="store_true", help="without --preload")
    parser.add_argument("--alone", action="store_true", help="without a launcher, from a common start")
    parser.add_argument("--times", type=int, metavar="N", help="begin N times, and print how many have worked")
    given = parser.parse_args()
    preload = [] if given.plain else ["--preload", "numpy,rankwise"]
    if given.times:
        for count in given.ranks:
            begin_often(count, given.times, preload)
        return
    start = begin_alone if given.alone else lambda count: begin(count, preload)
    start(2)  # which compiles what has been changed since it was last run, as an installer would
    print("| ranks | of them | requests beside heartbeats | processor (ms) | descriptors | PSS (MiB) | init (s) |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for count in given.ranks:
        done = start(count)
        if why := trouble(done, count):
            sys.exit(f"{count} ranks have not begun: {why}")
        for line in done.stdout.splitlines():
            print(line if given.alone else f"| {line.partition('| ')[2]}", flush=True)  # without who says it


if __name__ == "__main__":
    rank() if "RANK" in os.environ else main()
