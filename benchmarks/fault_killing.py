"""What becomes of the others when a rank is killed: in any operation, on any transport, and afterwards."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from fault_jobs import Case, Job, say

import rankwise as dist

_ELEMENTS = (1, 50_000)

#: Shared memory of MPI libraries, whose jobs may run beside this one.
_OF_OTHERS = ("mpich", "vader", "sm_segment", "ompi", "openmpi", "pmix")


def _send_recv(array: Any) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank % 2 == 0:
        dist.send(array, (rank + 1) % size)
        dist.recv(array, (rank - 1) % size)
    else:
        other = array.copy()
        dist.recv(other, (rank - 1) % size)
        dist.send(array, (rank + 1) % size)


def _parts(array: Any) -> list[Any]:
    return [np.empty_like(array) for _ in range(dist.get_world_size())]


def _at_root(array: Any) -> Any:
    return _parts(array) if dist.get_rank() == 0 else None


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "all_reduce": dist.all_reduce,
    "broadcast": lambda array: dist.broadcast(array, 0),
    "reduce": lambda array: dist.reduce(array, 0),
    "all_gather": lambda array: dist.all_gather(_parts(array), array),
    "gather": lambda array: dist.gather(array, _at_root(array), 0),
    "scatter": lambda array: dist.scatter(array, _at_root(array), 0),
    "reduce_scatter": lambda array: dist.reduce_scatter(array.copy(), _parts(array)),
    "all_to_all": lambda array: dist.all_to_all(_parts(array), _parts(array)),
    "barrier": lambda array: dist.barrier(),
    "send_recv": _send_recv,
}


def killed(trials: int, seed: int) -> Iterator[Case]:
    """Kill a rank in the middle of each operation; yield what each of the others has heard, and when."""
    dice = random.Random(seed)
    for transport in ("shm", "tcp"):
        for size in (2, 3, 4):
            for op in OPERATIONS:
                for trial in range(trials):
                    victim = dice.randrange(size)
                    elements = _ELEMENTS[trial % len(_ELEMENTS)]
                    yield partial(_kill_one, op, transport, size, victim, elements, dice.uniform(0.0, 0.15))


def _kill_one(op: str, transport: str, size: int, victim: int, elements: int, after_s: float) -> dict[str, Any]:
    def program(rank: int) -> None:
        array = np.zeros(elements, np.float32)
        dist.barrier()
        say(ready=True)
        try:
            while True:
                OPERATIONS[op](array)
        except dist.DistError as error:
            say(heard=str(error), kind=type(error).__name__, rank=getattr(error, "rank", None))

    with Job(size, program, transport) as job:
        ready = job.wait_for("ready")
        time.sleep(after_s)
        at = job.signal(victim, signal.SIGKILL)
        ended = job.finish(10.0) and ready
        heard = [job.word(rank, "heard") for rank in range(size) if rank != victim]
    words = [line for line in heard if line is not None]
    return {
        "op": op,
        "transport": transport,
        "size": size,
        "victim": victim,
        "hosts_store": victim == 0,
        "raised": ended and len(words) == size - 1,
        "named": all(line["rank"] == victim for line in words),
        "same": len({line["heard"] for line in words}) == 1,
        "latency_s": max((line["at"] - at for line in words), default=float("inf")),
        "texts": sorted({line["heard"] for line in words}),
        "crashed": [line for told in job.told for line in told if "crashed" in line],
    }


def shrunk(trials: int, seed: int) -> Iterator[Case]:
    """Kill a rank, shrink the group and go on; yield when the first right result was there."""
    dice = random.Random(seed)
    for trial in range(trials):
        transport, size = ("shm", "tcp")[trial % 2], 4
        yield partial(_shrink_one, transport, size, dice.randrange(1, size))


def _shrink_one(transport: str, size: int, victim: int) -> dict[str, Any]:
    expected = sum(rank + 1 for rank in range(size) if rank != victim)

    def program(rank: int) -> None:
        array = np.ones(1000)
        dist.barrier()
        say(ready=True)
        try:
            while True:
                dist.all_reduce(array)
        except dist.DistError as error:
            victims = [getattr(error, "rank", -1)]
        group = dist.shrink_group(victims, shrink_flags=dist.SHRINK_ABORT)
        array[:] = rank + 1
        dist.all_reduce(array, group=group)
        say(right=bool((array == expected).all()))
        for _ in range(100):
            array[:] = rank + 1
            dist.all_reduce(array, group=group)
            if not (array == expected).all():
                say(wrong=True)
        dist.destroy_process_group()

    with Job(size, program, transport) as job:
        job.wait_for("ready")
        time.sleep(0.03)
        at = job.signal(victim, signal.SIGKILL)
        ended = job.finish(20.0)
        lines = [job.word(rank, "right") for rank in range(size) if rank != victim]
        wrong = any(job.word(rank, "wrong") for rank in range(size))
    right = [line for line in lines if line is not None and line["right"]]
    return {
        "transport": transport,
        "right": ended and len(right) == size - 1 and not wrong,
        "latency_s": max((line["at"] - at for line in right), default=float("inf")),
        "crashed": [line for told in job.told for line in told if "crashed" in line],
    }


def swept(trials: int, seed: int) -> Iterator[Case]:
    """Kill all ranks at any moment, or one at any moment after the start; tell what is left two seconds later."""
    dice = random.Random(seed)
    for trial in range(trials):
        yield partial(_sweep_one, ("shm", "tcp")[trial % 2], trial % 4 < 2, dice.uniform(0.0, 0.25))


def _sweep_one(transport: str, everyone: bool, after_s: float) -> dict[str, Any]:
    def program(rank: int) -> None:
        array = np.zeros(50_000, np.float32)
        say(ready=True)
        while True:
            dist.all_reduce(array)

    with tempfile.TemporaryDirectory() as folder:
        before = _segments()
        with Job(3, program, transport, {"TMPDIR": folder}) as job:
            if not everyone:
                job.wait_for("ready")
            time.sleep(after_s)
            for rank in range(3) if everyone else (1,):
                job.signal(rank, signal.SIGKILL)
            job.finish(2.0)
            stuck = [rank for rank, status in job.status.items() if status == signal.SIGKILL and rank != 1]
        left = sorted(_segments() - before) + os.listdir(folder)
    return {"everyone": everyone, "left": left, "stuck": [] if everyone else stuck}


def _segments() -> set[str]:
    """Return the names in shared memory."""
    names = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    return {name for name in names if not name.startswith(_OF_OTHERS)}
