"""Random programs against NumPy: `random_calls.py FIRST_SEED HOW_MANY`.

All ranks draw the same steps, each a message or a collective; how each makes its part, and in which order it waits for
or polls what is pending, each draws for itself. Every program is correct: who waits at a step waits for steps up to
this one, which all others come to issue. So at any thread level none may stand still.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import rankwise as dist
from rankwise import ReduceOp

STEPS, TIMEOUT_S = 40, 30
COUNTS = (0, 1, 100, 600, 5_000, 60_000)  # by all ways that libraries have for messages
TAGS = (0, 1, 2, 70_000)

dist.init_process_group("mpi", timeout=TIMEOUT_S)
rank, size = dist.get_rank(), dist.get_world_size()
Check = Callable[[], None]


class Program:
    """One random program."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.common, self.own = random.Random(seed), random.Random(seed * 1000 + rank)
        self.pending: list[tuple[Any, Check]] = []

    def run(self) -> None:
        for step in range(STEPS):
            (self.message if size > 1 and self.common.random() < 0.65 else self.collective)(step)
            self.look_around()
        while self.pending:
            self.end(self.own.randrange(len(self.pending)))

    def data(self, step: int, of: int, count: int) -> Any:
        return np.random.default_rng([self.seed, step, of]).integers(-1000, 1000, count)

    def message(self, step: int) -> None:
        source, target = self.common.sample(range(size), 2)
        tag, count, room = self.common.choice(TAGS), self.common.choice(COUNTS), self.common.choice((0, 3))
        wanted = self.data(step, source, count)
        if rank == source:
            if self.own.random() < 0.2:
                dist.send(wanted, target, tag=tag)
            else:
                self.pending.append((dist.isend(wanted, target, tag=tag), lambda: None))
        elif rank == target:
            got = np.full(count + room, 7)

            def check() -> None:
                assert (got[:count] == wanted).all(), f"seed {self.seed}, step {step}: {got[:5]} for {wanted[:5]}"
                assert (got[count:] == 7).all(), f"seed {self.seed}, step {step}: written past the end"

            if self.own.random() < 0.2:
                dist.recv(got, source, tag=tag)
                check()
            else:
                self.pending.append((dist.irecv(got, source, tag=tag), check))

    def collective(self, step: int) -> None:
        op, count, root = self.common.choice(OPS), self.common.choice(COUNTS), self.common.randrange(size)
        mine = self.data(step, rank, count)
        alls = [self.data(step, of, count) for of in range(size)]
        work, got, wanted = op(mine, alls, root, self.own.random() < 0.4)

        def check() -> None:
            assert wanted is None or (got == wanted).all(), f"seed {self.seed}, step {step}, {op.__name__}"

        if work is None:
            check()
        else:
            self.pending.append((work, check))

    def look_around(self) -> None:
        """Wait for something that is pending, poll it to its end, look once, or go on."""
        if not self.pending:
            return
        chosen, how = self.own.randrange(len(self.pending)), self.own.random()
        if how < 0.15:
            self.end(chosen)
        elif how < 0.3:
            until = time.monotonic() + TIMEOUT_S
            while not self.pending[chosen][0].is_completed():
                assert time.monotonic() < until, f"seed {self.seed}: polling has no end"
                time.sleep(0)
            self.end(chosen)
        elif how < 0.5:
            self.pending[chosen][0].is_completed()

    def end(self, chosen: int) -> None:
        work, check = self.pending.pop(chosen)
        work.wait()
        check()


def all_reduce(mine: Any, alls: list[Any], root: int, later: bool) -> Any:
    return dist.all_reduce(mine, async_op=later), mine, sum(alls)


def reduce(mine: Any, alls: list[Any], root: int, later: bool) -> Any:
    return dist.reduce(mine, root, ReduceOp.MAX, async_op=later), mine, np.max(alls, 0) if rank == root else None


def broadcast(mine: Any, alls: list[Any], root: int, later: bool) -> Any:
    return dist.broadcast(mine, root, async_op=later), mine, alls[root]


def all_gather(mine: Any, alls: list[Any], root: int, later: bool) -> Any:
    out = np.zeros(mine.size * size, mine.dtype)
    return dist.all_gather_single(out, mine, async_op=later), out, np.concatenate(alls)


def gather(mine: Any, alls: list[Any], root: int, later: bool) -> Any:
    out = np.zeros((size, mine.size), mine.dtype)
    parts = list(out) if rank == root else None
    return dist.gather(mine, parts, root, async_op=later), out, np.stack(alls) if rank == root else None


def scatter(mine: Any, alls: list[Any], root: int, later: bool) -> Any:
    wanted = alls[root] + rank
    return (
        dist.scatter(mine, [alls[root] + i for i in range(size)] if rank == root else None, root, async_op=later),
        (mine),
        wanted,
    )


def all_to_all(mine: Any, alls: list[Any], root: int, later: bool) -> Any:
    out = np.zeros(mine.size * size, mine.dtype)
    ins = np.concatenate([mine + i for i in range(size)])
    return dist.all_to_all_single(out, ins, async_op=later), out, np.concatenate([each + rank for each in alls])


def barrier(mine: Any, alls: list[Any], root: int, later: bool) -> Any:
    return dist.barrier(async_op=later), mine, None


OPS = (all_reduce, reduce, broadcast, all_gather, gather, scatter, all_to_all, barrier)

first, many = int(sys.argv[1]), int(sys.argv[2])
for seed in range(first, first + many):
    Program(seed).run()
dist.destroy_process_group()
print("fine", flush=True)
