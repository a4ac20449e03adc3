"""How busy the machine is, for programs beside the tests that have time-outs of their own."""

from __future__ import annotations

import os

_MOST = 20.0


def slowness() -> float:
    """Return how many processes want each processor, by the last minute's mean: so much longer may all take."""
    return min(max(1.0, round(os.getloadavg()[0] / (os.cpu_count() or 1))), _MOST)
