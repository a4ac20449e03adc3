"""What is used up by beginning and ending again and again, and what a network that drops packets does."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from fault_jobs import Case, Job, say
from two_hosts import Hosts, forbidden

import rankwise as dist

_WARM_UP = 20


def cycled(trials: int, seed: int) -> Iterator[Case]:
    """Make and destroy the default group `trials` times in two processes; yield what that has used up."""
    for transport in ("shm", "tcp"):
        yield partial(_cycle, transport, trials)


def _cycle(transport: str, count: int) -> dict[str, Any]:
    def program(rank: int) -> None:
        port = int(os.environ["MASTER_PORT"])
        array = np.zeros(1000)
        dist.destroy_process_group()
        before = _used()
        for number in range(count + _WARM_UP):
            if number == _WARM_UP:
                before = _used()
            dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", 20, 2, rank)
            dist.all_reduce(array)
            dist.destroy_process_group()
        time.sleep(0.1)
        say(used=[after - first for after, first in zip(_used(), before, strict=True)])

    begin = time.monotonic()
    with Job(2, program, transport, {"MASTER_PORT": str(20_000 + os.getpid() % 20_000)}) as job:
        job.finish(600.0)
        used = [line["used"] for line in (job.word(rank, "used") for rank in range(2)) if line is not None]
        crashed = [line for told in job.told for line in told if "crashed" in line]
    return {
        "transport": transport,
        "count": count,
        "ended": len(used) == 2,
        "descriptors": max((one[0] for one in used), default=-1),
        "threads": max((one[1] for one in used), default=-1),
        "nbytes": max((one[2] for one in used), default=-1),
        "took_s": time.monotonic() - begin,
        "crashed": crashed,
    }


def _used() -> tuple[int, int, int]:
    """Return how many descriptors, threads and bytes of memory this process has."""
    with open("/proc/self/statm", encoding="ascii") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return len(os.listdir("/proc/self/fd")), threading.active_count(), resident


def parted(trials: int, seed: int) -> Iterator[Case]:
    """Let two hosts lose sight of each other in silence; yield when each has noticed. Nothing where it is forbidden."""
    if forbidden():
        return
    for _ in range(trials):
        yield _part_two


def _part_two() -> dict[str, Any]:
    with Hosts(2) as hosts:
        return _part(hosts)


def _part(hosts: Hosts) -> dict[str, Any]:
    import secrets
    import tempfile

    limit_s = 1.0

    def begin(rank: int, size: int, port: int) -> None:
        _enter(hosts.names[rank])
        dist.init_process_group("gloo", f"tcp://{hosts.addresses[0]}:{port}", 30, size, rank)

    def program(rank: int) -> None:
        array = np.zeros(1000)
        dist.barrier()
        say(ready=True)
        try:
            while True:
                dist.all_reduce(array)
        except dist.DistError as error:
            say(heard=str(error), rank=getattr(error, "rank", None))

    with tempfile.NamedTemporaryFile("w", suffix=".secret") as file:
        os.chmod(file.name, 0o600)
        file.write(secrets.token_hex(32))
        file.flush()
        env = {
            "RANKWISE_SECRET_FILE": file.name,
            "RANKWISE_HEARTBEAT_S": "0.2",
            "RANKWISE_HEARTBEAT_LIMIT_S": str(limit_s),
            "RANKWISE_OUTAGE_LIMIT_S": str(limit_s),
        }
        with Job(2, program, "tcp", env, begin=begin) as job:
            ready = job.wait_for("ready")
            time.sleep(1.0)
            at = time.monotonic()
            hosts.part(1)
            job.wait_for("heard", timeout_s=15.0)
            heard = [job.word(rank, "heard") for rank in range(2)]
            crashed = [line for told in job.told for line in told if "crashed" in line]
    words = [line for line in heard if line is not None]
    return {
        "ready": ready,
        "limit_s": limit_s,
        "named": len(words) == 2 and all(line["rank"] == 1 - rank for rank, line in enumerate(heard) if line),
        "latency_s": max(line["at"] - at for line in words) if len(words) == 2 else float("inf"),
        "texts": sorted({line["heard"] for line in words}),
        "crashed": crashed,
    }


def _enter(namespace: str) -> None:
    """Move this process to a network namespace."""
    import ctypes

    descriptor = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
    clone_newnet = 0x40000000
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, clone_newnet):
        raise OSError(ctypes.get_errno(), f"setns {namespace}")
    os.close(descriptor)
