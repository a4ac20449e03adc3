"""Time a short life of many ranks on this machine, and tell how much memory a rank holds.

    python benchmarks/startup.py --ranks 2 16 32

As a program sees it: from a common start, after `import rankwise` alone, each rank makes the group, for which it loads
what it needs, waits at a barrier, reduces 1,000 floats and destroys the group. The time is that of the slowest rank,
the median over the repeats. "All loaded" is what `init` takes in processes that have loaded these modules before; what
it takes less is their loading. Memory is what is resident before the group is destroyed, beyond that of a process that
has only imported NumPy. Before that it prints what `import rankwise` itself adds to NumPy's import.

With `--floor` it measures instead what no arrangement of this code can go below: the same ranks load pyzmq, msgpack and
pluggy, and as many empty modules as the first group loads of this project's, and meet in a store.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path


def resident_nbytes() -> int:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def work(load_first: list[str]) -> None:
    """Be one rank: print the time of each part, the memory, and which modules were loaded on the way."""
    import numpy as np

    import rankwise as dist

    for name in load_first:
        importlib.import_module(name)
    before = set(sys.modules)
    array = np.ones(1000, np.float32)
    print("ready", flush=True)
    sys.stdin.readline()
    times = [time.perf_counter()]
    dist.init_process_group("gloo")
    times.append(time.perf_counter())
    loaded = [name for name in sys.modules if name not in before]
    dist.barrier()
    times.append(time.perf_counter())
    dist.all_reduce(array)
    times.append(time.perf_counter())
    held = resident_nbytes()
    dist.destroy_process_group()
    times.append(time.perf_counter())
    assert array[0] == dist_size()
    print(json.dumps([*(b - a for a, b in pairwise(times)), times[-1] - times[0], held]), flush=True)
    print(json.dumps(loaded), flush=True)
    sys.stdin.readline()  # nobody pays for the end of an interpreter while others are still at it


def work_at_the_floor(empty: list[str]) -> None:
    """Be one rank that loads others' modules and empty ones, and meets the others in a store; print the times."""
    import rankwise as dist

    rank, size = int(os.environ["RANK"]), dist_size()
    print("ready", flush=True)
    sys.stdin.readline()
    times, used = [time.perf_counter()], [time.process_time()]
    for name in ("zmq", "msgpack", "pluggy", *empty):
        importlib.import_module(name)
    times.append(time.perf_counter())
    used.append(time.process_time())
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, rank == 0, timeout=60)
    if store.add("come", 1) == size:
        store.set("all", "")
    store.get("all")
    times.append(time.perf_counter())
    used.append(time.process_time())
    print(json.dumps([*(b - a for a, b in pairwise(times)), *(b - a for a, b in pairwise(used))]), flush=True)
    print("[]", flush=True)
    sys.stdin.readline()
    store.close()


def dist_size() -> int:
    """Return the number of ranks."""
    return int(os.environ["WORLD_SIZE"])


def run(
    ranks: int, load_first: Sequence[str] = (), task: str = "--work", path: str = ""
) -> tuple[list[list[float]], list[str]]:
    """Return what each rank has measured, and the modules that one of them has loaded."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {**os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [path, env.get("PYTHONPATH")]))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, __file__, task, *load_first]
    processes = [
        subprocess.Popen(command, env={**env, "RANK": str(rank)}, text=True, **pipes)  # type: ignore[call-overload]
        for rank in range(ranks)
    ]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        found = [json.loads(process.stdout.readline()) for process in processes]
        modules = json.loads(processes[-1].stdout.readline())
        for process in processes:
            process.communicate(timeout=60)
        return found, modules
    finally:
        for process in processes:
            process.kill()
            process.wait()


def slowest(ranks: int, repeats: int, load_first: Sequence[str] = ()) -> list[float]:
    """Return the figures of the slowest rank, each the median over the repeats."""
    runs = [[max(column) for column in zip(*run(ranks, load_first)[0], strict=True)] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*runs, strict=True)]


def floor(ranks: Sequence[int], repeats: int) -> None:
    """Print what the ranks take for what cannot be left out."""
    ours = [name for name in run(2)[1] if name.startswith("rankwise")]
    names = [f"empty_{index}" for index in range(len(ours))]
    print(f"Loading pyzmq, msgpack, pluggy and {len(names)} empty modules, and meeting in a store:\n")
    print("| ranks | load | meet | both (s) | processor's ms of a rank: load | meet |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            Path(folder, f"{name}.py").write_text('"""Nothing."""\n', encoding="utf-8")
        for count in ranks:
            runs = [run(count, names, "--work-at-the-floor", folder)[0] for _ in range(repeats + 1)][1:]
            took = [statistics.median(max(row[i] for row in rows) for rows in runs) for i in (0, 1)]
            whole = statistics.median(max(row[0] + row[1] for row in rows) for rows in runs)
            used = [1e3 * statistics.median(row[i] for rows in runs for row in rows) for i in (2, 3)]
            cells = [str(count), *(f"{x:.3f}" for x in (*took, whole)), *(f"{x:.1f}" for x in used)]
            print("| " + " | ".join(cells) + " |")


def numpy_alone_nbytes() -> int:
    """Return the resident memory of a process that has imported NumPy."""
    code = "import numpy, startup; print(startup.resident_nbytes())"
    folder = Path(__file__).parent
    return int(subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, check=True).stdout)


def import_ms(repeats: int) -> float:
    """Return the median time that `import rankwise` takes in a process that has imported NumPy."""
    code = "import time, numpy; a = time.perf_counter(); import rankwise; print(time.perf_counter() - a)"
    command = [sys.executable, "-c", code]
    times = [float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(repeats)]
    return 1e3 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 16, 32])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--floor", action="store_true", help="measure what cannot be left out")
    parser.add_argument("--work", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--work-at-the-floor", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work_at_the_floor is not None:
        work_at_the_floor(given.work_at_the_floor)
        return
    if given.work is not None:
        work(given.work)
        return
    if given.floor:
        floor(given.ranks, given.repeats)
        return
    alone = numpy_alone_nbytes()
    print(f"import rankwise, after NumPy: {import_ms(4 * given.repeats):.1f} ms\n")
    modules = run(2)[1]
    print(f"The first group of a process loads {len(modules)} modules.\n")
    print("| ranks | init | all loaded | barrier | all_reduce | destroy | all (s) | MiB of a rank beyond NumPy's |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    found = {}
    for ranks in given.ranks:
        middle = slowest(ranks, given.repeats)
        loaded = slowest(ranks, given.repeats, modules)
        found[ranks] = {"seconds": middle[:-1], "loaded": loaded[:-1], "extra_nbytes": middle[-1] - alone}
        times = [middle[0], loaded[0], *middle[1:-1]]
        cells = [str(ranks), *(f"{x:.3f}" for x in times), f"{(middle[-1] - alone) / 2**20:.1f}"]
        print("| " + " | ".join(cells) + " |")
    if given.json:
        facts = {"machine": list(os.uname()), "processors": os.cpu_count(), "numpy_nbytes": alone, "ranks": found}
        given.json.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
