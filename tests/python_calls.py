"""What tests share that count the functions of Python a call calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

import rankwise as dist

#: What a rank does that has slept at a socket, as one does whose peers are late.
STANDING_UP = ("release", "released", "may_be_pending")
#: How often a call is made before it is counted; how often it is then at a time, and in all at the most.
_WARM, _AT_A_TIME, _MOST = 3, 10, 600


def called(call: Callable[[], Any]) -> list[FrameType]:
    """Make a call, and return the frames of the functions of Python that it calls, itself among them."""
    return _called(call, lambda frame, event: False)


def unhindered(call: Callable[[], Any]) -> int:
    """Make a call, and return how many functions of Python that calls, but for those by which it waits for others."""
    waits: list[FrameType] = []

    def is_of_a_wait(frame: FrameType, event: str) -> bool:
        if event == "return" and waits and waits[-1] is frame:
            waits.clear()
        elif event == "call" and not waits:
            if frame.f_code.co_name == "wait" or frame.f_code.co_filename.endswith("wiring.py"):
                waits.append(frame)
            return bool(waits) or frame.f_code.co_name in STANDING_UP
        return True

    return len(_called(call, is_of_a_wait))


def once(call: Callable[[], Any]) -> int:
    """Make a call, wait for its work if it has one, and return how many functions of Python that calls."""

    def and_wait() -> None:
        work = call()
        if hasattr(work, "wait"):
            work.wait()

    return sum(frame.f_code.co_name not in STANDING_UP for frame in called(and_wait)) - 1


def fewest(call: Callable[[], Any], most: int) -> int:
    """Return how many functions of Python a warm call calls, and its wait if it has one: the least of many calls.

    All ranks of the world make it together. One that is kept waiting looks around meanwhile, and is counted for that
    too, on a busy machine many times one after the other; so all go on until none has more than so many.
    """
    least = sys.maxsize
    for turn in range(_MOST):
        count = once(call)
        if turn >= _WARM:
            least = min(least, count)
        if turn % _AT_A_TIME == _AT_A_TIME - 1:
            worst = np.array([least > most])
            dist.all_reduce(worst, dist.ReduceOp.MAX)
            if not worst[0]:
                break
    return least


def _called(call: Callable[[], Any], leaves_out: Callable[[FrameType, str], bool]) -> list[FrameType]:
    """Make a call, and return what is not left out of the frames that are called meanwhile.

    `leaves_out` hears of each as it begins ("call") and as it ends ("return").
    """
    found: list[FrameType] = []

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event in ("call", "return") and not leaves_out(frame, event) and event == "call":
            found.append(frame)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found
