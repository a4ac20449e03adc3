"""Print what the parts of a small `all_reduce` on one host cost, without any waiting: the other rank is forged.

    python benchmarks/small_path.py

Each figure is the least over many short rounds, so that other programs matter little. The last lines are what the
flight recorder takes of each call, compiled and in Python, while nobody looks and while calls are counted, as for
`dist.stats()`, exporters and `rankwise top`. Counting is done for many calls together, so these rounds are long, and
measured by the thread's own clock.
"""

from __future__ import annotations

import os
import sys
import timeit
from collections.abc import Callable
from time import thread_time
from typing import Any

import numpy as np

import rankwise as dist
from rankwise.backends import Call
from rankwise.backends.contract import Context
from rankwise.basics import native
from rankwise.basics.deadline import Deadline
from rankwise.basics.recording import FlightRecorder, make_recorder
from rankwise.groups.world import current
from rankwise_gloo_tcp.board import board
from rankwise_gloo_tcp.collectives.one_host import OneHost
from rankwise_watch.noting import PythonRecorder

CALLS, ROUNDS = 60, 300
#: Many times the calls that a recorder in Python counts together.
MANY_CALLS, FEWER_ROUNDS = 5000, 40


class Alone(board.Board):
    """A board whose other rank comes at once, and makes the same call."""

    def _arrive(self, turn: int, deadline: Deadline) -> None:
        words, (mine, other) = self._words, self._table[turn & 1]
        for field in range(6):
            words[other + field] = words[mine + field]
        words[self._others[turn & 1][0]] = turn
        super()._arrive(turn, deadline)


def least(function: Callable[[], object]) -> float:
    """Return the least time of one call in microseconds."""
    function()
    return min(timeit.repeat(function, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6


def counting(recorder: FlightRecorder) -> tuple[float, float]:
    """Return what a recorder takes of a call in microseconds, without counting and with it."""
    trail, array = recorder.trail("default", "default", (0, 1)), np.zeros(2, np.float32)

    def record() -> None:
        trail.begin("all_reduce", array)
        trail.end()

    def once() -> float:
        took_s = timeit.repeat(record, timer=thread_time, number=MANY_CALLS, repeat=FEWER_ROUNDS)
        return min(took_s) / MANY_CALLS * 1e6

    once()  # the ring is full from now on
    off = once()
    recorder.count()
    return off, once()


def print_counting() -> None:
    recorders = {"in Python": PythonRecorder()}
    if native.module() is not None:
        recorders = {"compiled": make_recorder(), **recorders}
    print("flight recorder, a call:                  not counting   counting   more")
    for name, recorder in recorders.items():
        off, on = counting(recorder)
        print(f"  {name + ':':40}{off:12.2f}{on:11.2f}{on - off:+7.2f}")


def main() -> None:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    group = current().default
    assert group is not None
    comm = group.communicators()[0]
    comm.size, comm.context = 2, Context("default", 0, 2, (0, 1), 30.0)
    group.ranks, group.rank_of = (0, 1), {0: 0, 1: 1}
    descriptor = board.create(2, True)
    comm.start_board(Alone(descriptor, 0, 2, True, comm.look))  # type: ignore[attr-defined]
    strategy = OneHost(comm, comm.board)  # type: ignore[arg-type, attr-defined]
    comm.use(strategy)  # type: ignore[attr-defined]
    shared = strategy.board
    group.shortcuts = comm.shortcuts(group)
    array, deadline, op = np.zeros(2, np.float32), Deadline(30.0), dist.ReduceOp.SUM
    asked = Call("all_reduce", array, op)
    prepared: Any = comm.prepare(asked)
    call, about, given = prepared.call, prepared.about, (array, op)
    words, (mine, other), index = shared._words, shared._table[0], shared._others[0][0]

    def forge() -> None:
        for field in range(6):
            words[other + field] = words[mine + field]
        words[index] = words[index]

    forged = least(forge)
    public = least(lambda: dist.all_reduce(array)) - forged
    method = least(lambda: comm.run(Call("all_reduce", array, op), 30.0)) - forged
    find = least(lambda: comm.prepare(asked))
    parts = {
        "write": least(lambda: call.offer(shared, given)),
        "post and compare": least(lambda: shared.exchange(1, about, deadline)) - forged,
        "add": least(lambda: call.take(shared, strategy.meet, deadline, given)),
    }
    # A meeting without a comparison posts too.
    compared = least(lambda: shared.exchange(1, about, deadline)) - least(lambda: shared.meet(deadline))
    at_board = sum(parts.values())
    trail = group.trail
    recorded = least(lambda: (trail.begin("all_reduce", array), trail.end()))
    print(f"all_reduce of 8 bytes, without waiting:       {public:.1f} us")
    print(f"  public call, with the flight recorder:      {public - method:.1f}")
    print(f"    flight recorder:                          {recorded:.1f}")
    print(f"  finding the prepared call:                  {find:.1f}")
    print(f"  order, deadline, errors:                    {method - find - at_board:.1f}")
    print(f"  at the board:                               {at_board:.1f}")
    for name, took in parts.items():
        print(f"    {name + ':':42}{took:.1f}")
    print(f"  comparing the calls, of all that:           {compared:.2f} ({compared / public:.1%} without waiting)")
    print_counting()
    sys.stdout.flush()
    os._exit(0)  # there is nobody to say good-bye to


if __name__ == "__main__":
    main()
