"""Testing programs that communicate in many processes, and backends against the contract.

- `run_ranks` and `RankPool` run functions on processes, and bring the failing rank's traceback home.
- `register_chaos` wraps a backend so that it delays, drops, corrupts, reorders or kills.
- `rankwise_testing.suite` is the conformance kit: `rankwise conformance NAME`, `conformance(NAME)`, or
  `pytest --pyargs rankwise_testing.suite --backend NAME`.

Ranks that are threads of one process need none of this: `rankwise_local.local_world` has a distribution of its own.
"""

import rankwise_local  # noqa: F401  # registers the backend `local`
import rankwise_testing.belongs  # noqa: F401
from rankwise_testing.chaos import Chaos, RankKilledError, chaos_spec, register_chaos
from rankwise_testing.conformance import conformance
from rankwise_testing.harness import RankFailedError, RankPool, run_ranks

__all__ = [
    "Chaos",
    "RankFailedError",
    "RankKilledError",
    "RankPool",
    "chaos_spec",
    "conformance",
    "register_chaos",
    "run_ranks",
]
