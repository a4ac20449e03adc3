"""Testing programs that communicate, and backends: in one process, in many, and against the contract.

- `local_world` runs collective code on threads, for unit tests without a launcher.
- `run_ranks` and `RankPool` run functions on processes, and bring the failing rank's traceback home.
- `register_chaos` wraps a backend so that it delays, drops, corrupts, reorders or kills.
- `rankwise.testing.suite` is the conformance kit: `pytest --pyargs rankwise.testing.suite --backend NAME`, or
  `conformance(NAME)`.

Importing this package registers the backend `local`.
"""

from rankwise.testing.chaos import Chaos, RankKilledError, chaos_spec, register_chaos
from rankwise.testing.conformance import conformance
from rankwise.testing.harness import RankFailedError, RankPool, run_ranks
from rankwise.testing.local import register_local
from rankwise.testing.local_world import LocalWorld, local_world

__all__ = [
    "Chaos",
    "LocalWorld",
    "RankFailedError",
    "RankKilledError",
    "RankPool",
    "chaos_spec",
    "conformance",
    "local_world",
    "register_chaos",
    "register_local",
    "run_ranks",
]

register_local()
