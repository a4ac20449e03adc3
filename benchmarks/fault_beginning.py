"""Ranks that are interrupted, stopped or killed while an encrypted group begins, and connects for its first calls.

A beginning takes some 50 ms, and ten times as long on a busy machine. So the moment is a number of calls of functions
that the rank has made, as many as a beginning has that nobody disturbs. The rank says when it has come there, and
sends itself the signal.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from itertools import count
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
from fault_jobs import Case, Job, free_port, say

import rankwise as dist
from rankwise.errors import DistError
from rankwise_gloo_tcp.setup import cards
from rankwise_network import doors

#: After how long a rank gives up the handshake of an incoming connection, and for how long one is stopped.
_PATIENCE_S, _STOPPED_S = 0.5, (0.05, 2.0)
#: At which call of functions in a part of its beginning each rank is to be hurt.
_Moments = Mapping[int, Mapping[str, int]]
_PARTS = ("meeting", "connecting")
#: How often a moment is chosen before a trial counts as one that came too late.
_TRIES = 5
#: The time-out of the group, that of the next one, and after how long a job has to be done. A rank that is interrupted
#: before it has met the others is waited for: nobody knows of it, and its process lives.
_TIMEOUT_S = {"interrupted": 5.0, "stopped": 30.0, "killed": 5.0}
_AGAIN_S, _DONE_S = 40.0, 60.0
_SIGNALS = {"interrupted": signal.SIGINT, "stopped": signal.SIGSTOP, "killed": signal.SIGKILL}


def begun(trials: int, seed: int) -> Iterator[Case]:
    """Hurt a rank in each way as a group begins; yield what becomes of that group, and of the next one."""
    for name in _undisturbed(2)[0]["modules"]:  # not in any rank's time
        with suppress(ImportError):
            import_module(name)
    _undisturbed.cache_clear()
    for how in _SIGNALS:
        for trial in range(trials):
            yield partial(_hurt, how, random.Random(f"{seed} {how} {trial}"))


def _hurt(how: str, chance: random.Random) -> dict[str, Any]:
    """Hurt a rank; anew where its beginning has ended with fewer calls than the undisturbed one had."""
    for _ in range(_TRIES):
        found = _once(how, chance)
        if found["in_time"]:
            break
    return found


def _once(how: str, chance: random.Random) -> dict[str, Any]:
    size = chance.choice((2, 3))
    victim, stopped_s = chance.randrange(size), chance.uniform(*_STOPPED_S)
    part = chance.choice(_PARTS)
    moments = {victim: {part: chance.randrange(_undisturbed(size)[victim][part])}}
    number = _SIGNALS[how]
    again = "" if how == "killed" else f"tcp://127.0.0.1:{free_port()}"
    with _encrypted() as env, _deaf():
        begin = partial(_first, _TIMEOUT_S[how], moments, number)
        with Job(size, partial(_again, size, again), env=env, begin=begin) as job:
            reached = job.wait_for("now", [victim])
            if reached and how == "stopped":
                os.waitid(os.P_PID, job.pids[victim], os.WSTOPPED | os.WEXITED | os.WNOWAIT)
                time.sleep(stopped_s)
                job.signal(victim, signal.SIGCONT)
            ended = job.finish(_DONE_S)
            now = job.word(victim, "now")
    lives = [rank for rank in range(size) if rank != victim or how != "killed"]
    first = [job.word(rank, "first") for rank in lives]
    return {
        "how": how,
        "ended": ended,
        "in_time": now is not None and any(line is None or line["at"] > now["at"] for line in first),
        "whole": all(line is not None and line["first"] == "right" for line in first),
        "fine": all(job.word(rank, "fine") for rank in lives),
        "told": job.told,
    }


@cache
def _undisturbed(size: int) -> list[dict[str, Any]]:
    """Return what the ranks have told of a beginning: how many calls each of its parts has, and what was imported."""
    begin = partial(_first, _AGAIN_S, {}, 0)
    with _encrypted() as env, Job(size, partial(_again, size, ""), env=env, begin=begin) as job:
        job.finish(_DONE_S)
    return [{word: told for line in lines for word, told in line.items()} for lines in job.told]


@contextmanager
def _encrypted() -> Iterator[dict[str, str]]:
    with NamedTemporaryFile("w") as file:  # which nobody else may read
        file.write(secrets.token_hex(32))
        file.flush()
        yield {"RANKWISE_GLOO_INTEGRITY": "encrypted", "RANKWISE_SECRET_FILE": file.name}


@contextmanager
def _deaf() -> Iterator[None]:
    """Have ranks begin that hear no interrupt before they are ready for it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _counted(part: str, at: int = -1, number: int = 0) -> Iterator[None]:
    """Count the calls of functions in the block, in all its threads; send this process a signal when it is at one."""
    calls = count()

    def called(*_: Any) -> None:
        if next(calls) == at:
            say(now=True)
            os.kill(os.getpid(), number)

    threading.setprofile(called)
    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    say(**{part: next(calls)})


def _first(timeout_s: float, moments: _Moments, number: int, rank: int, size: int, port: int) -> None:
    """Begin a group and make its first calls, until something is heard, with a signal at this rank's moment."""
    cards.machine = lambda: (f"host {rank}", f"host {rank}")
    doors.PATIENCE_S = _PATIENCE_S
    heard = "right"
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _calls(rank, size, f"tcp://127.0.0.1:{port}", timeout_s, moments.get(rank, {}), number)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except (KeyboardInterrupt, DistError) as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        heard = f"{type(error).__name__}: {error}"
    say(first=heard, modules=[*sys.modules])
    if dist.is_initialized():
        dist.destroy_process_group()


def _again(size: int, where: str, rank: int) -> None:
    """Begin another group, of which all ranks live."""
    if where:
        _calls(rank, size, where, _AGAIN_S)
        dist.destroy_process_group()
    say(fine=True)


def _calls(
    rank: int, size: int, where: str, timeout_s: float, moments: Mapping[str, int] = {}, number: int = 0
) -> None:
    with _counted("meeting", moments.get("meeting", -1), number):
        dist.init_process_group("gloo", where, timeout_s, size, rank)
    array = np.ones(3)
    with _counted("connecting", moments.get("connecting", -1), number):
        coming: Any = dist.irecv(got := np.zeros(3), (rank - 1) % size)
        dist.send(array, (rank + 1) % size)
        coming.wait()
        dist.all_reduce(array)
    if array.tolist() != [size] * 3 or got.tolist() != [1] * 3:
        raise AssertionError(f"{array} and {got} are wrong")
