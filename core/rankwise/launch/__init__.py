"""Starting the ranks of a job: `rankwise run`, `python -m rankwise.launch`, and `spawn`."""

from rankwise.errors import ProcessException, ProcessExitedException, ProcessRaisedException
from rankwise.launch.spawning import SpawnContext, spawn

__all__ = ["ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext", "spawn"]
