"""How many processors the ranks of this machine have between them: with fewer than ranks, nobody may spin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

_GROUPS, _MOUNTED = "/proc/self/cgroup", "/sys/fs/cgroup"


def mine() -> tuple[str, float]:
    """Return the processors that this process may use, as a mask in hexadecimal digits, and how many at a time."""
    if hasattr(os, "sched_getaffinity"):
        allowed = os.sched_getaffinity(0)
    else:
        allowed = set(range(os.cpu_count() or 1))
    return f"{sum(1 << core for core in allowed):x}", min(float(len(allowed)), *_quotas())


def together(masks: list[tuple[str, float]]) -> float:
    """Return how many processors several processes of one machine have between them."""
    union, distinct = 0, set(masks)
    for mask, _ in distinct:
        union |= int(mask, 16)
    limits = {quota for mask, quota in distinct if quota < bin(int(mask, 16)).count("1")}
    return min([float(bin(union).count("1")), *limits])


def _quotas() -> Iterator[float]:
    """Yield the limits of this process's control groups, in processors: those of a group hold for all within it."""
    yield float("inf")
    # opens: nothing, it reads what the kernel says
    with suppress(OSError), open(_GROUPS, encoding="utf-8") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if not controllers or "cpu" in controllers.split(","):
                mounted = os.path.join(_MOUNTED, controllers)
                for folder in _upwards(path.strip("/")):
                    yield _quota(os.path.join(mounted, folder), old=bool(controllers))


def _upwards(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield ""  # in a container this is its own, whatever the path says


def _quota(folder: str, old: bool) -> float:
    """Return what one control group allows; the files of version 1 are others than those of version 2."""
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if old else ("cpu.max",)
    try:
        words = [word for name in names for word in _read(os.path.join(folder, name)).split()]
        quota, period = words
        return float("inf") if quota in ("max", "-1") else int(quota) / int(period)
    except (OSError, ValueError):
        return float("inf")


def _read(path: str) -> str:
    # opens: nothing, it reads what the kernel says
    with open(path, encoding="utf-8") as file:
        return file.read()
