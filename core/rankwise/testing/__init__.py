"""Testing programs that communicate, in one process: `local_world` runs collective code on threads, without a launcher.

Importing this package registers the backend `local`. Ranks that are processes, chaos and the conformance kit are in the
distribution rankwise-testing.
"""

from rankwise.testing.local import register_local
from rankwise.testing.local_world import LocalWorld, local_world

__all__ = ["LocalWorld", "local_world", "register_local"]

register_local()
