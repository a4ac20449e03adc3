"""Print what questions that name no backend take beside a hundred plugins of others: python benchmarks/questions.py

Each plugin declares a table of its own. Programs ask in interpreters of their own, after they have asked this project's
backends: one with no answers kept, the next with those that the first has kept. Figures are the least of several. On a
busy machine the processor time tells more, which is that of the program and of those that it asks.
"""

from __future__ import annotations

import argparse
import compileall
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path

PLUGINS = 100
AIMS_US = {
    "cold": 500_000.0,
    "kept": 5_000.0,
    "again": 5_000.0,
    "yes": 1.0,
    "no": 1.0,
    "named": 1.0,
    "refused": 1_000.0,
}
MEANINGS = {
    "cold": "the first question of all, which asks them",
    "cold, processor": "  its processor time, in two processes",
    "kept": "the first question of the next program",
    "kept, processor": "  its processor time",
    "again": "capabilities(), again",
    "yes": "supports(...), again: yes",
    "no": "supports(...), again: no",
    "named": "supports(..., backend='gloo'), again",
    "refused": "a refused all_reduce",
}
_SOURCE = """
from rankwise.backends import COLLECTIVES, BackendSpec, Capabilities, Device, conditional, derived, hookimpl, native
OPS = {**native("send", "recv"), **derived(*COLLECTIVES)}
OPS |= conditional("gather", reason="needs driver 2.NUMBER", holds=lambda: True)
FEATURES = {**native("tags", "any_source", "abort"), **derived("async", "timeout")}
@hookimpl
def rankwise_backend():
    devices = {"cpu": Device(OPS, FEATURES), "xpu": Device(OPS, native("tags"))}
    return BackendSpec("stranger_NUMBER", 1, Capabilities("stranger_NUMBER", devices), create=print)
"""


def main() -> int:
    """Measure, print, and tell by the exit code whether the aims are reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5, help="how many programs ask (default: 5)")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        print(json.dumps(_asked(options.ask)))
        return 0
    found: dict[str, float] = {}
    for _ in range(options.times):
        with tempfile.TemporaryDirectory() as folder:
            site, cache = Path(folder) / "site", Path(folder) / "cache"
            _install(site)
            for stage in ("cold", "kept"):
                for name, us in _program(site, cache, stage).items():
                    found[name] = min(us, found.get(name, us))
    for name, us in found.items():
        most = AIMS_US.get(name, math.inf)
        verdict = f"  (at most {most:,g}: {'yes' if us <= most else 'NO'})" if name in AIMS_US else ""
        print(f"{MEANINGS[name]:45} {us:12,.2f} us{verdict}")
    return int(any(us > AIMS_US.get(name, us) for name, us in found.items()))


def _install(folder: Path) -> None:
    folder.mkdir()
    for number in range(PLUGINS):
        info = folder / f"stranger_{number}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: stranger-{number}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[rankwise.backends]\nstranger_{number} = plugin_{number}\n")
        (folder / f"plugin_{number}.py").write_text(_SOURCE.replace("NUMBER", str(number)))
    compileall.compile_dir(folder, quiet=1)  # as pip does


def _program(site: Path, cache: Path, stage: str) -> dict[str, float]:
    os.utime(site, (0, 0))  # as if all had been installed long ago
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, __file__, "--ask", stage],
        env={**env, "PYTHONPATH": str(site), "XDG_CACHE_HOME": str(cache)},
        check=True,
        stdout=subprocess.PIPE,
        timeout=60,
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def _asked(stage: str) -> dict[str, float]:
    """Be a program: ask, and return what each question has taken, in microseconds."""
    import rankwise as dist
    from rankwise.launching import KNOWN
    from rankwise_launch import answers  # noqa: F401 - importing it is no question

    for name in KNOWN:
        dist.availability(name)
    before = _processor_us()
    first = {stage: _once(dist.capabilities), f"{stage}, processor": _processor_us() - before}
    assert len(dist.capabilities()) >= PLUGINS
    assert not [name for name in sys.modules if name.startswith("plugin_")]
    if stage == "cold":
        return first
    return {**first, "again": _least(dist.capabilities, 5), **_asked_again()}


def _asked_again() -> dict[str, float]:
    import numpy as np

    import rankwise as dist

    asked = "all_reduce", "cpu", np.float32, dist.ReduceOp.SUM
    figures = {
        "yes": _least(lambda: dist.supports(*asked), 1000),
        "no": _least(lambda: dist.supports("all_reduce", "xpu", "str"), 1000),
        "named": _least(lambda: dist.supports(*asked, backend="gloo"), 1000),
    }
    dist.init_process_group("gloo", rank=0, world_size=1)
    array = np.ones(3)

    def refused() -> None:
        try:
            dist.all_reduce(array, dist.ReduceOp.BXOR)
        except dist.UnsupportedOperationError:
            return
        raise AssertionError("it was not refused")

    figures["refused"] = _least(refused, 20)
    dist.destroy_process_group()
    return figures


def _processor_us() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used) * 1e6


def _once(call: Callable[[], object]) -> float:
    return timeit.timeit(call, number=1) * 1e6


def _least(call: Callable[[], object], calls: int) -> float:
    call()
    return min(timeit.repeat(call, number=calls, repeat=20)) / calls * 1e6


if __name__ == "__main__":
    sys.exit(main())
