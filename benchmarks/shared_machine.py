"""Time a program whose ranks do not have the machine for themselves: what it finishes, and what that takes.

    python benchmarks/shared_machine.py
    python benchmarks/shared_machine.py --mpich .venv-mpich/bin/python --rounds 5 --only crowded loaders

Each rank computes for a while and takes part in an `all_reduce` of 8 KiB, again and again. Contenders take turns:
rankwise, and MPI as it is meant for such machines, with waits that yield. A cell is the time until all ranks have done
all steps, with the least and the most of the rounds, and the processor time of all ranks; for MPI also how many times
ours they are. The cases:

    alone       a rank for each processor, and nothing else
    crowded     four ranks for each processor
    loaders     a rank for each processor, and beside each a process that is busy half of the time, as a loader is
    threads     a rank for each processor, which multiply matrices with as many threads as there are processors; a tenth
                of the steps
    together    two ranks on one processor, where the group did not expect that
    quota       a rank for each processor, in a control group that may use half of them (as root)
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TIMEOUT_S = 300
PROCESSORS = len(os.sched_getaffinity(0))
CASES = ("alone", "crowded", "loaders", "threads", "together", "quota")
#: What a process that loads data does: it is busy, and waits for its disk.
LOADER = """
import time
while True:
    until = time.monotonic() + 0.005
    while time.monotonic() < until: pass
    time.sleep(0.005)
"""
PERIOD_US = 100_000


# ------------------------------------------------------------------ one rank


def rank(who: str, case: str, steps: int) -> None:
    """Be one rank, and on rank 0 print how long all have taken, and their processor time."""
    import numpy as np

    me, all_reduce, end = ours() if who == "rankwise" else theirs()
    if case == "together":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    loader = subprocess.Popen([sys.executable, "-c", LOADER]) if case == "loaders" else None
    side = 256 if case == "threads" else 64
    matrix, array = np.full((side, side), 1e-3), np.zeros(1024)
    out = np.empty_like(matrix)
    products = max(1, round(products_in(2e-3 if case == "threads" else 2e-4, matrix)))
    all_reduce(array)
    began, used = time.perf_counter(), time.process_time()
    for _ in range(steps):
        for _ in range(products):
            np.matmul(matrix, matrix, out=out)
        all_reduce(array)
    took = np.array([time.process_time() - used])
    seconds = time.perf_counter() - began
    all_reduce(took)
    if loader is not None:
        loader.kill()
    if me == 0:
        print(json.dumps([seconds, float(took[0])]), flush=True)
    end()


def products_in(seconds: float, matrix: object) -> float:
    """Return how many products take about so long: the same on all ranks and for all contenders of a case."""
    from_environment = os.environ.get("PRODUCTS")
    if from_environment:
        return float(from_environment)
    import numpy as np

    out = np.empty_like(matrix)
    took = []
    for _ in range(200):
        began = time.perf_counter()
        np.matmul(matrix, matrix, out=out)
        took.append(time.perf_counter() - began)
    return seconds / statistics.median(took)


Member = tuple[int, Callable[..., object], Callable[[], object]]


def ours() -> Member:
    import rankwise as dist

    dist.init_process_group("gloo")
    return dist.get_rank(), dist.all_reduce, dist.destroy_process_group


def theirs() -> Member:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    return world.rank, lambda array: world.Allreduce(MPI.IN_PLACE, array), lambda: None


# ------------------------------------------------------------------ all of them


def command(who: str, python: str, size: int, *words: str) -> tuple[list[str], dict[str, str]]:
    """Return the command line that starts the ranks of a contender, and what it is told besides."""
    program = [__file__, "--rank", who, *words]
    if who == "rankwise":
        return [python, "-m", "rankwise", "run", "-n", str(size), *program], {}
    mpiexec = shutil.which("mpiexec", path=os.pathsep.join([str(Path(python).parent), os.environ["PATH"]]))
    if mpiexec is None:
        sys.exit(f"there is no mpiexec beside {python}")
    if who == "MPICH":
        return [mpiexec, "-n", str(size), python, *program], {}
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    yielding = {"OMPI_MCA_mpi_yield_when_idle": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    return [mpiexec, "--bind-to", "none", "-n", str(size), python, *program], root | yielding


@contextmanager
def limited(case: str) -> Iterator[Path | None]:
    """Make a control group of half of the processors, if the case wants one."""
    if case != "quota":
        yield None
        return
    for parent in ("cpu", "cpu,cpuacct", ""):
        folder = Path("/sys/fs/cgroup", parent, f"rankwise-{os.getpid()}")
        with suppress(OSError):
            folder.mkdir()
            allowed = PROCESSORS * PERIOD_US // 2
            if (folder / "cpu.max").exists():
                (folder / "cpu.max").write_text(f"{allowed} {PERIOD_US}")
            else:
                (folder / "cpu.cfs_quota_us").write_text(str(allowed))
            try:
                yield folder
            finally:
                folder.rmdir()
            return
    sys.exit("quota: no control group can be made here")


def run(who: str, python: str, case: str, steps: int, products: str) -> tuple[float, float]:
    """Return how long the ranks of a contender took, and their processor time."""
    size = {"crowded": 4 * PROCESSORS, "together": 2}.get(case, PROCESSORS)
    threads = str(PROCESSORS if case == "threads" else 1)
    line, more = command(who, python, size, case, str(steps // 10 if case == "threads" else steps))
    env = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "PRODUCTS": products, **more}
    with limited(case) as group:
        enter = None if group is None else lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
        done = subprocess.run(
            line, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, preexec_fn=enter, check=False
        )
    found = [text for text in done.stdout.splitlines() if text.endswith("]") and "[" in text]
    if done.returncode or not found:
        sys.exit(f"{who}, {case}: {(done.stderr or done.stdout)[-400:]}")
    seconds, processor = json.loads(found[0][found[0].rindex("[") :])
    return seconds, processor


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--mpich", help="the Python of an environment whose mpi4py loads MPICH")
    parser.add_argument("--only", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--rank", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        who, case, steps = given.rank
        rank(who, case, int(steps))
        return
    pythons = {
        "rankwise": sys.executable,
        "Open MPI": sys.executable,
        **({"MPICH": given.mpich} if given.mpich else {}),
    }
    print("| case | " + " | ".join(f"{who}, s | processor, s" for who in pythons) + " |")
    print("|---" * (1 + 2 * len(pythons)) + "|", flush=True)
    for case in given.only:
        products = str(counted(case))
        took: dict[str, list[tuple[float, float]]] = {who: [] for who in pythons}
        for turn in range(given.rounds):
            for who in list(pythons)[:: 1 if turn % 2 == 0 else -1]:
                took[who].append(run(who, pythons[who], case, given.steps, products))
        print(row(case, took), flush=True)


def counted(case: str) -> int:
    """Return how many products make a step of a case, as they are now."""
    import numpy as np

    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    side = 256 if case == "threads" else 64
    return max(1, round(products_in(2e-3 if case == "threads" else 2e-4, np.full((side, side), 1e-3))))


def row(case: str, took: dict[str, list[tuple[float, float]]]) -> str:
    cells, first = [case], next(iter(took.values()))
    base = [statistics.median(values) for values in zip(*first, strict=True)]
    for who, rounds in took.items():
        for values, ours in zip(zip(*rounds, strict=True), base, strict=True):
            middle = statistics.median(values)
            times = "" if took[who] is first else f", {middle / ours:.2f}x"
            cells.append(f"{middle:.2f} ({min(values):.2f}-{max(values):.2f}){times}")
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
