"""Steps of which one rank's is interrupted, and what must be true afterwards.

The rule (docs/interrupts.md): an interrupted call has done nothing, or has only ended its wait, and can be made again;
or the group has been given up, and all ranks raise the same `GroupAbortedError`. Nothing else: no other error, no
message lost or received twice, and nobody stands still.
"""

from __future__ import annotations

import inspect
import random
import time
import traceback
from typing import Any, NamedTuple

import far_away
import interrupt_cases
import numpy as np
from interrupt_cases import CASES, Place
from interrupt_checks import Checks, Interrupted, Stopped, ThreadWatch, unraisable

import rankwise as dist

#: After so many steps a group is made anew, though it may be as good as before.
_STEPS = 40
#: How many points a call is taken to have before it has been counted.
_FIRST_GUESS = 60
_TIMEOUT_S = 30.0
#: Which part of the interrupts comes after a time.
_TIMED = 0.3


class Point(NamedTuple):
    """One interrupt that has gone wrong: on which rank, where, what is wrong, and what each rank says."""

    case: str
    rank: int
    where: str
    verdict: str
    said: list[str]

    def __str__(self) -> str:
        said = "".join(f"\n    rank {rank}: {text}" for rank, text in enumerate(self.said))
        return f"{self.case}, rank {self.rank} at {self.where}: {self.verdict}{said}"


class Tally(NamedTuple):
    """What has come of some points: how many went on, gave the group up, came to nothing; and the first wrong one."""

    went_on: int
    given_up: int
    not_raised: int
    wrong: Point | None


def run_points(
    backend: str, points: int, seed: int, cases: list[str], seconds: float = 1e9, slowness: float = 1.0
) -> Tally:
    """Interrupt calls at random points; each rank of a world calls this, and all get the same.

    Args:
        backend: The backend.
        points: How many.
        seed: What decides all that is random, but for the moment of a timer.
        cases: Which calls.
        seconds: After so long no new point is begun.
        slowness: How many times as long as on an idle machine the groups' time-out is; who waits for that stands still.
    """
    far_away.pretend()
    dist.init_process_group(backend, timeout=60)
    checks = Checks()
    for module in (__file__, interrupt_cases.__file__, inspect.unwrap(np.full).__code__.co_filename):
        checks.spare(module)
    unraisable(checks)
    watch = ThreadWatch()
    counts = dict.fromkeys(("went on", "given up", "not raised"), 0)
    chance, lengths, wrong = random.Random(seed), {}, None
    group, until = None, time.monotonic() + seconds
    for number in range(points):
        if group is None:
            group, step = dist.new_group(timeout=_TIMEOUT_S * slowness), 0
        case, victim, how = chance.choice(cases), chance.randrange(2), chance.random()
        at = chance.random()
        late = chance.uniform(0, 0.06) if how < 0.4 else 0.0  # then the interrupted rank is the first, and waits
        checks.kind = chance.choice((Interrupted, Stopped))
        place = Place(group)
        began = time.monotonic()
        said = _step(place, case, step, checks, victim, how, at, late, lengths)
        if (took := time.monotonic() - began) > _TIMEOUT_S * slowness / 3:
            said = *said[:2], f"WRONG it has stood still for {took:.1f} s: {said[2]}"
        if watch.deaths:
            said = *said[:2], f"WRONG a thread has died: {watch.deaths[0]}"
        told: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(told, (*said, time.monotonic() > until))
        step += 2
        verdict = _judge(told, victim)
        if verdict in counts:
            counts[verdict] += 1
        else:
            where = told[victim][1]
            known: list[Any] = [None] * len(told)
            dist.all_gather_object(known, watch.stacks())
            ends = [f"{end[2]}\n{stacks}" for end, stacks in zip(told, known, strict=True)]
            wrong = Point(f"{case} (point {number} of seed {seed})", victim, where, verdict, ends)
            break
        if verdict == "given up" or step >= _STEPS:
            dist.destroy_process_group(group)
            group = None
        if any(t[-1] for t in told):
            break
    if wrong is None:
        dist.destroy_process_group()
    return Tally(counts["went on"], counts["given up"], counts["not raised"], wrong)


def _step(
    place: Place, case: str, step: int, checks: Checks, victim: int, how: float, at: float, late: float, lengths: Any
) -> tuple[str, str, str]:
    """Make a call and one more; return whether it was interrupted, where, and how it ended."""
    run, interrupted = CASES[case], ""
    me = dist.get_rank()
    try:
        if me == victim:
            key = case, step % 2
            try:
                if how < _TIMED:
                    checks.arm_after(0.0002 + at * 1.5 * late)
                else:
                    checks.arm(1 + int(at * lengths.get(key, _FIRST_GUESS)))
                run(place, step)
                checks.disarm()
                if how >= _TIMED:
                    lengths[key] = max(1, int(checks.count * 1.05))
            except (Interrupted, Stopped):
                checks.disarm()
                interrupted = "interrupted"
                run(place, step)
            finally:
                checks.disarm()
        else:
            if late:
                time.sleep(late)
            run(place, step)
        run(place, step + 1)
        dist.barrier(place.group)  # a message may have left before the group was given up
        ended = "ok"
    except dist.GroupAbortedError as error:
        ended = f"GroupAbortedError: {error}"
    except BaseException as error:
        ended = "WRONG " + "".join(traceback.format_exception_only(type(error), error)).strip()
        if not isinstance(error, (dist.DistError, interrupt_cases.Wrong)):
            ended += "\n" + traceback.format_exc()
    return interrupted, checks.where, ended


def _judge(told: list[Any], victim: int) -> str:
    """Return what has come of a point, or what is wrong."""
    ends = {t[2] for t in told}
    if len(ends) > 1:
        return "the ranks do not agree"
    end = ends.pop()
    if end.startswith("WRONG"):
        return "a call has failed otherwise"
    if end == "ok":
        return "went on" if told[victim][0] else "not raised"
    if not told[victim][0]:
        return "given up without an interrupt"
    return "given up" if "was interrupted by" in end else "it is not said why"
