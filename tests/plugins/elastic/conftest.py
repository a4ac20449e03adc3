"""What the tests of rankwise-elastic share, among them and with the benchmarks, is found by its name."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "benchmarks")]
