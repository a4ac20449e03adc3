"""Waiting in vain in every call that blocks, with deadlines from 10 ms to 10 s: by how much each outlasts its own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from fault_jobs import Case, Job, free_port, say

import rankwise as dist
from rankwise.errors import DistTimeoutError

#: Unless told otherwise; 10 s are asked for by `--timeouts 10`.
TIMEOUTS_S = (0.01, 0.1, 1.0)
#: From here on all calls wait at the same time: what begins and ends together is over long before a deadline.
_TOGETHER_FROM_S = 5.0


def _f32(size: int) -> Any:
    return np.zeros(size, np.float32)


def _two() -> list[Any]:
    return [_f32(4), _f32(4)]


def _store() -> dist.Store:
    assert dist.group.WORLD is not None
    return dist.group.WORLD.get_group_store()


#: What rank 0 of two waits for, while rank 1 does nothing.
WAITS: dict[str, Callable[[float], object]] = {
    "recv": lambda s: dist.recv(_f32(4), 1, timeout=s),
    "recv from anyone": lambda s: dist.recv(_f32(4), timeout=s),
    "large send": lambda s: dist.send(_f32(1 << 22), 1, timeout=s),
    "irecv": lambda s: dist.irecv(_f32(4), 1).wait(s),
    "batch_isend_irecv": lambda s: dist.batch_isend_irecv([dist.P2POp(dist.irecv, _f32(4), 1)])[0].wait(s),
    "broadcast": lambda s: dist.broadcast(_f32(4), 1, timeout=s),
    "all_reduce": lambda s: dist.all_reduce(_f32(4), timeout=s),
    "large all_reduce": lambda s: dist.all_reduce(_f32(1 << 20), timeout=s),
    "async all_reduce": lambda s: dist.all_reduce(_f32(4), async_op=True).wait(s),
    "reduce": lambda s: dist.reduce(_f32(4), 0, timeout=s),
    "all_gather": lambda s: dist.all_gather(_two(), _f32(4), timeout=s),
    "gather": lambda s: dist.gather(_f32(4), _two(), 0, timeout=s),
    "scatter": lambda s: dist.scatter(_f32(4), None, 1, timeout=s),
    "reduce_scatter": lambda s: dist.reduce_scatter(_f32(4), _two(), timeout=s),
    "all_to_all": lambda s: dist.all_to_all(_two(), _two(), timeout=s),
    "barrier": lambda s: dist.barrier(timeout=s),
    "monitored_barrier": lambda s: dist.monitored_barrier(timeout=s),
    "store": lambda s: _store().get("never", timeout=s),
    "store.wait": lambda s: _store().wait(["never"], timeout=s),
    "store.queue_pop": lambda s: _store().queue_pop("never", timeout=s),
    "store.barrier": lambda s: _store().barrier("never", 2, timeout=s),
    "new_group": lambda s: dist.new_group(timeout=s),
    "TCPStore": lambda s: dist.TCPStore("127.0.0.1", free_port(), timeout=s),
    "rendezvous": lambda s: next(dist.rendezvous(f"tcp://127.0.0.1:{free_port()}", 1, 2, timeout=s)),
}


def _init(where: str, rank: int) -> Callable[[float], object]:
    return lambda s: dist.init_process_group("gloo", where, s, 2, rank)


#: And where there is no group yet.
BEGINNINGS: dict[str, Callable[[Path], Callable[[float], object]]] = {
    "init_process_group": lambda folder: _init(f"tcp://127.0.0.1:{free_port()}", 0),
    "init_process_group without rank 0": lambda folder: _init(f"tcp://127.0.0.1:{free_port()}", 1),
    "init_process_group at a file": lambda folder: _init(f"file://{folder}/meet", 0),
}


def late(trials: int, seed: int, timeouts_s: Sequence[float] = TIMEOUTS_S) -> Iterator[Case]:
    """Wait in vain; yield by how much each call outlasts its time-out."""
    for transport in ("shm", "tcp"):
        for timeout_s in timeouts_s:
            waits = [*WAITS, *BEGINNINGS] * trials
            if timeout_s >= _TOGETHER_FROM_S:
                yield partial(_be_late, transport, waits, timeout_s)
            else:
                yield from (partial(_be_late, transport, [wait], timeout_s) for wait in waits)


def _be_late(transport: str, waits: Sequence[str], timeout_s: float) -> list[dict[str, Any]]:
    """Let each wait have a job of its own, all at the same time."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        jobs = [stack.enter_context(_job(wait, transport, timeout_s, folder / str(i))) for i, wait in enumerate(waits)]
        until = time.monotonic() + timeout_s + 20
        for job in jobs:
            job.wait_for("done", [0], max(0.0, until - time.monotonic()))
        return [_found(job, wait, transport, timeout_s) for job, wait in zip(jobs, waits, strict=True)]


def _job(wait: str, transport: str, timeout_s: float, folder: Path) -> Job:
    def timed(call: Callable[[float], object]) -> None:
        begin_s = time.monotonic()
        try:
            call(timeout_s)
        except DistTimeoutError as error:
            say(heard=str(error), took_s=time.monotonic() - begin_s)

    def begin(rank: int, size: int, port: int) -> None:
        if rank == 0:
            folder.mkdir()
            for where in (f"file://{folder}/first", f"tcp://127.0.0.1:{free_port()}"):
                with suppress(DistTimeoutError):  # what a first call imports is not what is timed
                    _init(where, 0)(0.3)
            timed(BEGINNINGS[wait](folder))

    def program(rank: int) -> None:
        if wait in WAITS:
            dist.barrier()
            if rank == 0:
                timed(WAITS[wait])
        say(done=True)
        time.sleep(timeout_s + 1)

    return Job(2, program, transport, begin=begin if wait in BEGINNINGS else None)


def _found(job: Job, wait: str, transport: str, timeout_s: float) -> dict[str, Any]:
    heard = job.word(0, "heard")
    return {
        "call": wait,
        "transport": transport,
        "timeout_s": timeout_s,
        "over_s": float("inf") if heard is None else heard["took_s"] - timeout_s,
        "text": "" if heard is None else heard["heard"],
        "crashed": [line for told in job.told for line in told if "crashed" in line],
    }
