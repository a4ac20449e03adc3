"""`spawn`, and the door to the older command line; `rankwise run` is in the distribution `rankwise-launch`."""

from rankwise.errors import ProcessException, ProcessExitedException, ProcessRaisedException
from rankwise.launch.spawning import SpawnContext, spawn

__all__ = ["ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext", "spawn"]
