"""How many processors the ranks of this machine have between them: with fewer than ranks, nobody may spin."""

from __future__ import annotations

import os

__all__ = ["mine", "together"]


def mine() -> tuple[str, float]:
    """Return the processors that this process may use, as a mask in hexadecimal digits, and how many at a time."""
    if hasattr(os, "sched_getaffinity"):
        allowed = os.sched_getaffinity(0)
    else:
        allowed = set(range(os.cpu_count() or 1))
    return f"{sum(1 << core for core in allowed):x}", min(float(len(allowed)), _quota())


def together(masks: list[tuple[str, float]]) -> float:
    """Return how many processors several processes of one machine have between them."""
    union, distinct = 0, set(masks)
    for mask, _ in distinct:
        union |= int(mask, 16)
    limits = {quota for mask, quota in distinct if quota < bin(int(mask, 16)).count("1")}
    return min([float(bin(union).count("1")), *limits])


def _quota() -> float:
    """Return the limit of the control group, in processors."""
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="utf-8") as file:
            quota, period = file.read().split()
        return float("inf") if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return float("inf")
