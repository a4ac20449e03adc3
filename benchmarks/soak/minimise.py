"""Making a failing program shorter for as long as it still fails."""

from __future__ import annotations

import time
from collections.abc import Callable

from soak.program import Program


def minimised(program: Program, fails: Callable[[Program], object], limit_s: float) -> Program:
    """Leave out as many steps as possible: halves first, then ever smaller runs of steps.

    Args:
        program: A program that fails.
        fails: Returns something true if a program fails.
        limit_s: How long to go on trying.
    """
    deadline = time.monotonic() + limit_s
    places = [step.at for step in program.steps]
    run = len(places) // 2
    while run and time.monotonic() < deadline:
        begin = 0
        while begin < len(places) and time.monotonic() < deadline:
            fewer = places[:begin] + places[begin + run :]
            if fewer and fails(program.only(fewer)):
                places = fewer
            else:
                begin += run
        run //= 2
    return program.only(places)
