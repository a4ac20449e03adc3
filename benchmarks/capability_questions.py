"""Print what questions about capabilities and refused calls take, beside 100 more plugins that nobody asked for.

    python benchmarks/capability_questions.py

Each figure is the least over many rounds. The 100 plugins would each take a second to import, so that one which is
imported shows. The process that refuses has asked for gloo alone, as a program has.
"""

from __future__ import annotations

import sys
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path

import numpy as np

import rankwise as dist

PLUGINS = 100
AIMS_US = {"supports": 2.0, "refusal": 1000.0}


def main() -> int:
    """Measure, print, and tell by the exit code whether the aims are reached."""
    with tempfile.TemporaryDirectory() as folder:
        _install(Path(folder))
        sys.path.insert(0, folder)
        dist.init_process_group("gloo", rank=0, world_size=1)
        array = np.ones(3)

        def refused() -> None:
            try:
                dist.all_reduce(array, dist.ReduceOp.BXOR)
            except dist.UnsupportedOperationError:
                return
            raise AssertionError("it was not refused")

        figures = [
            ("refusal", "the first refused all_reduce", _once(refused)),
            ("refusal", "a refused all_reduce", _least(refused, 20)),
            ("supports", "supports, of gloo: yes", _asked("float32", "SUM", "gloo")),
            ("supports", "supports, of gloo: no", _asked("float32", "BXOR", "gloo")),
            ("supports", "supports, of any: yes", _asked(np.float32, dist.ReduceOp.SUM, None)),
        ]
        loaded = [name for name in sys.modules if name.startswith("slow_plugin_")]
        dist.destroy_process_group()
    for kind, text, us in figures:
        print(f"{text:32} {us:10.2f} us  (at most {AIMS_US[kind]:g}: {'yes' if us <= AIMS_US[kind] else 'NO'})")
    print(f"plugins imported that nobody asked for: {len(loaded)} of {PLUGINS}")
    return int(bool(loaded) or any(us > AIMS_US[kind] for kind, _, us in figures))


def _install(folder: Path) -> None:
    for number in range(PLUGINS):
        name = f"slow_plugin_{number}"
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[rankwise.backends]\n{name} = {name}\n")
        (folder / f"{name}.py").write_text("import time\ntime.sleep(1)\n")


def _asked(dtype: object, reduce_op: object, backend: str | None) -> float:
    return _least(lambda: dist.supports("all_reduce", "cpu", dtype, reduce_op, backend), 1000)


def _once(call: Callable[[], object]) -> float:
    return timeit.timeit(call, number=1) * 1e6


def _least(call: Callable[[], object], calls: int) -> float:
    call()
    return min(timeit.repeat(call, number=calls, repeat=50)) / calls * 1e6


if __name__ == "__main__":
    sys.exit(main())
