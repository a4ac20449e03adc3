"""What a group of torch's takes over rankwise and over gloo: time, descriptors, threads, processor time while idle.

    python benchmarks/torch_groups.py [--groups 70]

Two ranks make groups with `new_group` and keep them. Run it where nothing else runs; it takes half a minute.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

IDLE_S = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--groups", type=int, default=70)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--backend", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        _measure(given)
        return
    print("| a group of two ranks | ms, median | ms, mean | descriptors | threads | idle, % of a processor |")
    print("|---|---|---|---|---|---|", flush=True)
    for backend in ("gloo", "rankwise"):
        with tempfile.TemporaryDirectory() as folder:
            own = [sys.executable, __file__, "--groups", str(given.groups), "--backend", backend, "--rank"]
            ranks = [
                subprocess.Popen([*own, str(rank)], env={**os.environ, "PLACE": f"{folder}/meeting"})
                for rank in range(2)
            ]
            try:
                if any(rank.wait(timeout=200) for rank in ranks):
                    raise SystemExit("a rank has failed")
            finally:
                for rank in ranks:
                    rank.kill()


def _measure(given: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist

    import rankwise_torch  # noqa: F401 - registers the name

    torch.set_num_threads(1)
    meeting = dist.FileStore(os.environ["PLACE"], 2)
    if given.rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
        meeting.set("port", str(store.port))
    else:
        store = dist.TCPStore("127.0.0.1", int(meeting.get("port")), 2, is_master=False)
    dist.init_process_group(given.backend, store=store, rank=given.rank, world_size=2)
    dist.destroy_process_group(dist.new_group())
    descriptors, threads = _used()
    groups, times = [], []
    for _ in range(given.groups):
        begin = time.perf_counter()
        groups.append(dist.new_group())
        times.append(1e3 * (time.perf_counter() - begin))
    for group in groups:
        dist.all_reduce(torch.ones(1), group=group)
    after = _used()
    time.sleep(1)
    begin_s = time.process_time()
    time.sleep(IDLE_S)
    idle = 100 * (time.process_time() - begin_s) / IDLE_S / given.groups
    if given.rank == 0:
        each = [(now - before) / given.groups for now, before in zip(after, (descriptors, threads), strict=True)]
        print(
            f"| {given.backend} | {statistics.median(times):.1f} | {statistics.mean(times):.1f} | {each[0]:.1f} | "
            f"{each[1]:.1f} | {idle:.3f} |",
            flush=True,
        )
    dist.destroy_process_group()
    store.set(f"left {given.rank}", "")
    store.wait(["left 0", "left 1"])  # rank 0 serves it


def _used() -> tuple[int, int]:
    """Return how many descriptors and threads this process has."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


if __name__ == "__main__":
    main()
