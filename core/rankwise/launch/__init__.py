"""Starting the ranks of a job: `rankwise run`, `python -m rankwise.launch`, and `spawn`."""

from rankwise.launch.spawning import (
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
)

__all__ = ["ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext", "spawn"]
