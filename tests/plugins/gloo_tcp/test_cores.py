"""How many processors ranks have, where control groups limit them: a container's, a job's, and those around it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from rankwise_gloo_tcp.machine import cores

NEW, OLD = "0::{}\n", "9:name=systemd:/\n4:cpuset:/\n3:cpu,cpuacct:{}\n"


def limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, str]) -> float:
    (tmp_path / "groups").write_text(groups, encoding="utf-8")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(cores, "_GROUPS", str(tmp_path / "groups"))
    monkeypatch.setattr(cores, "_MOUNTED", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    mask, quota = cores.mine()
    assert int(mask, 16) == 0xFF
    return quota


@pytest.mark.parametrize(
    ("groups", "files", "processors"),
    [
        (NEW.format("/"), {}, 8),
        (NEW.format("/"), {"cpu.max": "max 100000\n"}, 8),
        (NEW.format("/"), {"cpu.max": "150000 100000\n"}, 1.5),
        (NEW.format("/job/step"), {"job/step/cpu.max": "max 100000\n", "job/cpu.max": "200000 100000\n"}, 2),
        (NEW.format("/job/step"), {"job/step/cpu.max": "100000 100000\n", "job/cpu.max": "200000 100000\n"}, 1),
        (NEW.format("/outside/of/the/container"), {"cpu.max": "300000 100000\n"}, 3),
        (NEW.format("/"), {"cpu.max": "nonsense\n"}, 8),
        (
            OLD.format("/job"),
            {"cpu,cpuacct/job/cpu.cfs_quota_us": "50000\n", "cpu,cpuacct/job/cpu.cfs_period_us": "100000\n"},
            0.5,
        ),
        (
            OLD.format("/docker/1234"),
            {"cpu,cpuacct/cpu.cfs_quota_us": "250000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"},
            2.5,
        ),
        (
            OLD.format("/job") + NEW.format("/"),
            {"cpu,cpuacct/job/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/job/cpu.cfs_period_us": "100000\n"},
            8,
        ),
        ("", {}, 8),
    ],
)
def test_the_least_limit_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, str], processors: float
) -> None:
    assert limited(tmp_path, monkeypatch, groups, files) == processors


def test_a_system_without_control_groups_limits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_GROUPS", str(tmp_path / "none"))
    _, quota = cores.mine()
    assert quota == len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def test_a_limit_that_the_kernel_keeps_is_seen() -> None:
    """Where this process may make a group of version 1, or of version 2 with the controller."""
    parents = [Path("/sys/fs/cgroup", name) for name in ("cpu", "cpu,cpuacct", "")]
    made = next((folder for parent in parents if (folder := _made(parent))), None)
    if made is None:
        pytest.skip("no control group can be made here")
    child = os.fork()
    if child == 0:  # it alone is moved there
        (made / "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")
        os._exit(0 if cores.mine()[1] == 0.5 else 1)
    _, status = os.waitpid(child, 0)
    made.rmdir()
    assert status == 0


def _made(parent: Path) -> Path | None:
    """Return a new group of half a processor within another; None where it cannot be."""
    folder = parent / f"rankwise-test-{os.getpid()}"
    with suppress(OSError):
        folder.mkdir()
        old, new = folder / "cpu.cfs_quota_us", folder / "cpu.max"
        for file, text in ((old, "50000"), (new, "50000 100000")):
            if file.exists():
                file.write_text(text, encoding="utf-8")
                return folder
    with suppress(OSError):
        folder.rmdir()
    return None
