"""Testing programs that communicate, and backends: in one process, in many, and against the contract.

- `local_world` runs collective code on threads, for unit tests without a launcher.
- `run_ranks` runs a function on processes, and brings the failing rank's traceback home.
- `chaos` wraps a backend and delays, drops, corrupts or kills.
- `rankwise.testing.suite` is the conformance kit: `pytest --pyargs rankwise.testing.suite --backend NAME`.

Importing this package registers the backend `local`.
"""

from rankwise.testing.local import register_local
from rankwise.testing.local_world import LocalWorld, local_world

__all__ = ["LocalWorld", "local_world", "register_local"]

register_local()
