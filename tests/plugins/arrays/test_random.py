"""Random calls of rankwise-arrays on each backend, beside NumPy; `test_random.py FIRST COUNT` runs many more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [] if str(HERE) in sys.path else [str(HERE)]
import array_programs  # noqa: E402
from ways import PATIENCE_S, PROCESSES, Ranks, in_world, pool_of  # noqa: E402


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
def test_random_calls_agree_with_numpy(ranks: Ranks, size: int) -> None:
    count = 2 * len(array_programs.CALLS)
    assert ranks.run(size, array_programs.random_calls, 1000 * size, count) == [count] * size


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    for name, (backend, _) in PROCESSES.items():
        for size in (2, 3, 4, 6):
            with pool_of(name, size) as pool:
                pool.run(in_world, backend, array_programs.random_calls, first, count, timeout=PATIENCE_S + count)
            print(f"{name} on {size} ranks: {count} calls, 0 wrong", flush=True)
