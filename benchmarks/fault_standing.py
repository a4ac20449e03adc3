"""Ranks that live but do not answer, a store that is gone, calls that do not fit, and Ctrl-C."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from fault_jobs import Case, Job, free_port, say
from fault_late import WAITS

import rankwise as dist
from rankwise.errors import CollectiveMismatchError, DistError

_BEAT_S, _LIMIT_S = 0.2, 1.0
_BEATS = {"RANKWISE_HEARTBEAT_S": str(_BEAT_S), "RANKWISE_HEARTBEAT_LIMIT_S": str(_LIMIT_S)}


def _loop(array: Any) -> None:
    try:
        while True:
            dist.all_reduce(array)
    except DistError as error:
        say(heard=str(error), rank=getattr(error, "rank", None))


def silent(trials: int, seed: int) -> Iterator[Case]:
    """Stop a rank, or have it hold the interpreter; yield when the others have given it up, and what they say."""
    for transport in ("shm", "tcp"):
        for how in ("stopped", "holds the interpreter"):
            for trial in range(trials):
                yield partial(_silence, transport, how, trial % 3)


def _silence(transport: str, how: str, victim: int) -> dict[str, Any]:
    def program(rank: int) -> None:
        array = np.zeros(1000)
        dist.barrier()
        time.sleep(3 * _BEAT_S)
        if rank == victim and how != "stopped":
            say(ready=True)
            ctypes.PyDLL(None).usleep(4_000_000)
        say(ready=True)
        _loop(array)

    with Job(3, program, transport, _BEATS) as job:
        job.wait_for("ready")
        word = job.word(victim, "ready")
        at = time.monotonic() if word is None else word["at"]
        if how == "stopped":
            time.sleep(0.1)
            at = job.signal(victim, signal.SIGSTOP)
        others = [rank for rank in range(3) if rank != victim]
        job.wait_for("heard", others, 10.0)
        heard = [line for line in (job.word(rank, "heard") for rank in others) if line is not None]
    return {
        "transport": transport,
        "how": how,
        "named": len(heard) == 2 and all(line["rank"] == victim and "hung" in line["heard"] for line in heard),
        "same": len({line["heard"] for line in heard}) == 1,
        "latency_s": max((line["at"] - at for line in heard), default=float("inf")),
        "limit_s": _LIMIT_S,
        "texts": sorted({line["heard"] for line in heard}),
    }


def slow(trials: int, seed: int) -> Iterator[Case]:
    """Be slow in ways that are no failure; yield whether any rank has heard of one."""
    for _ in range(trials):
        yield partial(_slow, "a rank holds the interpreter for 2 s", 3, _hold)
        yield partial(_slow, "four ranks to a core", 4 * len(os.sched_getaffinity(0)), _crowd)
        yield partial(_slow, "a message of 1 GiB", 2, _gibibyte, "tcp")


def _hold(rank: int) -> None:
    if rank == 1:
        ctypes.PyDLL(None).usleep(2_000_000)
    dist.barrier()


def _crowd(rank: int) -> None:
    array = np.zeros(1 << 18)
    until = time.monotonic() + 6.0
    go_on = np.ones(1)
    while go_on[0]:
        dist.all_reduce(array)
        go_on[0] = time.monotonic() < until
        dist.broadcast(go_on, 0)


def _gibibyte(rank: int) -> None:
    array = np.zeros(1 << 30, np.uint8)
    (dist.send if rank == 0 else dist.recv)(array, 1 - rank)


def _slow(what: str, size: int, step: Callable[[int], None], transport: str = "auto") -> dict[str, Any]:
    def program(rank: int) -> None:
        dist.barrier()
        step(rank)
        dist.destroy_process_group()
        say(fine=True)

    with Job(size, program, transport, timeout_s=120.0) as job:
        job.finish(120.0)
        fine = sum(job.word(rank, "fine") is not None for rank in range(size))
        crashed = [line for told in job.told for line in told if "crashed" in line]
    return {"what": what, "size": size, "fine": fine == size, "crashed": crashed}


def orphaned(trials: int, seed: int) -> Iterator[Case]:
    """Kill the process that serves the store; yield whether the groups run on, and what `new_group` says."""
    for trial in range(trials):
        yield partial(_orphan, ("shm", "tcp")[trial % 2])


def _orphan(transport: str) -> dict[str, Any]:
    port = free_port()

    def begin(rank: int, size: int, _: int) -> None:
        store = dist.TCPStore("127.0.0.1", port, is_master=rank == size - 1, timeout=20, wait_for_workers=False)
        if rank == size - 1:
            say(ready=True)
            time.sleep(60)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size - 1, timeout=20)

    def program(rank: int) -> None:
        array = np.zeros(100)
        dist.barrier()
        say(ready=True)
        for _ in range(10_000):
            dist.all_reduce(array)
        say(ran=True)
        begin_s = time.monotonic()
        try:
            dist.new_group([0, 1])
        except DistError as error:
            say(refused=str(error), kind=type(error).__name__, took_s=time.monotonic() - begin_s)

    with Job(4, program, transport, begin=begin) as job:
        job.wait_for("ready")
        job.signal(3, signal.SIGKILL)
        job.finish(60.0)
        ran = sum(job.word(rank, "ran") is not None for rank in range(3))
        refused = [line for line in (job.word(rank, "refused") for rank in range(3)) if line is not None]
        crashed = [line for told in job.told for line in told if "crashed" in line]
    return {
        "ran": ran == 3,
        "refused": len(refused) == 3 and all(line["kind"] == "DistStoreError" for line in refused),
        "latency_s": max((line["took_s"] for line in refused), default=float("inf")),
        "texts": sorted({line["refused"] for line in refused}),
        "crashed": crashed,
    }


def _f32(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def _three(size: int) -> list[Any]:
    return [_f32(size) for _ in range(3)]


#: Pairs of calls that do not fit: what rank 1 does, and what all others do.
_MISMATCHES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "operation": (lambda: dist.barrier(), lambda: dist.all_reduce(_f32(4))),
    "operation of the same shape": (lambda: dist.broadcast(_f32(4), 0), lambda: dist.all_reduce(_f32(4))),
    "reduce op": (lambda: dist.all_reduce(_f32(4), dist.ReduceOp.MAX), lambda: dist.all_reduce(_f32(4))),
    "root of broadcast": (lambda: dist.broadcast(_f32(4), 1), lambda: dist.broadcast(_f32(4), 0)),
    "root of reduce": (lambda: dist.reduce(_f32(4), 1), lambda: dist.reduce(_f32(4), 0)),
    "dtype": (lambda: dist.all_reduce(np.zeros(4, np.int32)), lambda: dist.all_reduce(_f32(4))),
    "size": (lambda: dist.all_reduce(_f32(5)), lambda: dist.all_reduce(_f32(4))),
    "shape": (lambda: dist.all_reduce(_f32(2, 3)), lambda: dist.all_reduce(_f32(3, 2))),
    "parts of all_to_all": (
        lambda: dist.all_to_all(_three(2), _three(2)),
        lambda: dist.all_to_all(_three(1), _three(1)),
    ),
    "parts of reduce_scatter": (
        lambda: dist.reduce_scatter(_f32(3), _three(3)),
        lambda: dist.reduce_scatter(_f32(2), _three(2)),
    ),
    "count of calls": (lambda: _twice(), lambda: dist.broadcast(_f32(4), 0)),
    "kind of gather": (
        lambda: dist.all_gather(_three(2), _f32(2)),
        lambda: dist.all_to_all(_three(2), _three(2)),
    ),
}


def _twice() -> None:
    dist.broadcast(_f32(4), 0)
    dist.all_reduce(_f32(4))


def confused(trials: int, seed: int) -> Iterator[Case]:
    """Have rank 1 make another call than the others; yield what all hear, and how soon."""
    for transport in ("shm", "tcp"):
        for kind in _MISMATCHES:
            for _ in range(trials):
                yield partial(_confuse, transport, kind)


def _confuse(transport: str, kind: str) -> dict[str, Any]:
    odd, usual = _MISMATCHES[kind]

    def program(rank: int) -> None:
        dist.barrier()
        begin_s = time.monotonic()
        try:
            (odd if rank == 1 else usual)()
            if kind == "count of calls" and rank != 1:
                dist.barrier()
        except CollectiveMismatchError as error:
            say(heard=str(error), odd=error.odd_ranks, took_s=time.monotonic() - begin_s)
            time.sleep(0.2)  # the program goes on: a rank that leaves now is missed for that

    with Job(3, program, transport, timeout_s=5.0) as job:
        job.finish(20.0)
        heard = [line for line in (job.word(rank, "heard") for rank in range(3)) if line is not None]
    return {
        "kind": kind,
        "transport": transport,
        "same": len(heard) == 3 and len({line["heard"] for line in heard}) == 1,
        "named": all(1 in line["odd"] for line in heard),
        "latency_s": max((line["took_s"] for line in heard), default=float("inf")),
        "texts": sorted({line["heard"] for line in heard}),
    }


_PAUSES = ("recv", "all_reduce", "large all_reduce", "barrier", "monitored_barrier", "store", "new_group")


def interrupted(trials: int, seed: int) -> Iterator[Case]:
    """Press Ctrl-C in any wait; yield how soon the program has control, and how long its end takes without destroy."""
    for transport in ("shm", "tcp"):
        for call in _PAUSES:
            for _ in range(trials):
                yield partial(_interrupt, transport, call)


def _interrupt(transport: str, call: str) -> dict[str, Any]:
    def program(rank: int) -> None:
        import atexit

        dist.barrier()
        if rank == 1:
            time.sleep(20)
        say(ready=True)
        try:
            WAITS[call](20.0)
        except KeyboardInterrupt:
            say(heard=True)
            atexit._run_exitfuncs()
            say(ended=True)

    with Job(2, program, transport) as job:
        job.wait_for("ready", [0])
        time.sleep(0.15)
        at = job.signal(0, signal.SIGINT)
        job.wait_for("ended", [0], 10.0)
        heard, ended = job.word(0, "heard"), job.word(0, "ended")
    return {
        "call": call,
        "transport": transport,
        "latency_s": float("inf") if heard is None else heard["at"] - at,
        "exit_s": float("inf") if heard is None or ended is None else ended["at"] - heard["at"],
    }
