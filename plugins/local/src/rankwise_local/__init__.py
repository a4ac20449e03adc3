"""Ranks that are threads of one process: programs that communicate, tested and tried without a launcher.

`local_world` runs collective code on threads, each of which is a rank with a world of its own. Importing this package
registers the backend `local`. Ranks that are processes, chaos and the conformance kit are in the distribution
rankwise-testing.
"""

from rankwise.backends import require_series
from rankwise_local.communicator import LocalCommunicator, register_local
from rankwise_local.world import LocalWorld, local_world

__all__ = ["LocalCommunicator", "LocalWorld", "local_world", "register_local"]

require_series("rankwise-local", "0.1")
register_local()
