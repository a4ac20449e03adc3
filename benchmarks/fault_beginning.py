"""Ranks that are interrupted, stopped or killed while an encrypted group begins, and connects for its first calls."""

from __future__ import annotations

import random
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
from fault_jobs import Case, Job, free_port, say

import rankwise as dist
from rankwise.errors import DistError
from rankwise_gloo_tcp.setup import cards
from rankwise_network import doors

__all__ = ["begun"]

#: After how long a rank gives up the handshake of an incoming connection, and for how long one is stopped.
_PATIENCE_S, _STOPPED_S = 0.5, (0.05, 2.0)
#: After which word of a rank, and within how long, it is hurt: as ranks meet, and as they connect.
_MOMENTS_S = (("starts", 0.8), ("has met", 0.03), ("has met", 0.1))
#: The time-out of the group, that of the next one, and after how long a job has to be done. A rank that is interrupted
#: before it has met the others is waited for: nobody knows of it, and its process lives.
_TIMEOUT_S = {"interrupted": 5.0, "stopped": 30.0, "killed": 5.0}
_AGAIN_S, _DONE_S = 40.0, 60.0
_SIGNALS = {"interrupted": signal.SIGINT, "stopped": signal.SIGSTOP, "killed": signal.SIGKILL}


def begun(trials: int, seed: int) -> Iterator[Case]:
    """Hurt a rank in each way as a group begins; yield what becomes of that group, and of the next one."""
    with suppress(ImportError):  # not in any rank's time
        import_module("cryptography.x509")
    for how in _SIGNALS:
        for trial in range(trials):
            yield partial(_hurt, how, random.Random(f"{seed} {how} {trial}"))


def _hurt(how: str, chance: random.Random) -> dict[str, Any]:
    size = chance.choice((2, 3))
    victim, stopped_s = chance.randrange(size), chance.uniform(*_STOPPED_S)
    word, within_s = chance.choice(_MOMENTS_S)
    with _secret() as secret, _deaf():
        env = {"RANKWISE_GLOO_INTEGRITY": "encrypted", "RANKWISE_SECRET_FILE": secret}
        again = "" if how == "killed" else f"tcp://127.0.0.1:{free_port()}"
        with Job(size, partial(_again, size, again), env=env, begin=partial(_first, _TIMEOUT_S[how])) as job:
            job.wait_for(word, [victim])
            time.sleep(chance.uniform(0, within_s))
            at = job.signal(victim, _SIGNALS[how])
            if how == "stopped":
                time.sleep(stopped_s)
                job.signal(victim, signal.SIGCONT)
            ended = job.finish(_DONE_S)
    lives = [rank for rank in range(size) if rank != victim or how != "killed"]
    first = [job.word(rank, "first") for rank in lives]
    return {
        "how": how,
        "ended": ended,
        "in_time": any(line is None or line["at"] > at for line in first),
        "whole": all(line is not None and line["first"] == "right" for line in first),
        "fine": all(job.word(rank, "fine") for rank in lives),
        "told": job.told,
    }


@contextmanager
def _secret() -> Iterator[str]:
    with NamedTemporaryFile("w") as file:  # which nobody else may read
        file.write(secrets.token_hex(32))
        file.flush()
        yield file.name


@contextmanager
def _deaf() -> Iterator[None]:
    """Have ranks begin that hear no interrupt before they are ready for it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _first(timeout_s: float, rank: int, size: int, port: int) -> None:
    """Begin a group and make its first calls, until something is heard."""
    cards.machine = lambda: (f"host {rank}", f"host {rank}")
    doors.PATIENCE_S = _PATIENCE_S
    heard = "right"
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _calls(rank, size, f"tcp://127.0.0.1:{port}", timeout_s)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except (KeyboardInterrupt, DistError) as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        heard = f"{type(error).__name__}: {error}"
    say(first=heard)
    if dist.is_initialized():
        dist.destroy_process_group()


def _again(size: int, where: str, rank: int) -> None:
    """Begin another group, of which all ranks live."""
    if where:
        _calls(rank, size, where, _AGAIN_S)
        dist.destroy_process_group()
    say(fine=True)


def _calls(rank: int, size: int, where: str, timeout_s: float) -> None:
    say(starts=True)
    dist.init_process_group("gloo", where, timeout_s, size, rank)
    say(**{"has met": True})
    array = np.ones(3)
    coming: Any = dist.irecv(got := np.zeros(3), (rank - 1) % size)
    dist.send(array, (rank + 1) % size)
    coming.wait()
    dist.all_reduce(array)
    if array.tolist() != [size] * 3 or got.tolist() != [1] * 3:
        raise AssertionError(f"{array} and {got} are wrong")
