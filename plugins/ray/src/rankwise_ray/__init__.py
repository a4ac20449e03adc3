"""rankwise on Ray: a backend of `ray.util.collective`, groups of actors, jobs of ranks, and Ray Train without torch.

Importing this package registers the backend "rankwise" in this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankwise_ray.names import BACKEND, register

if TYPE_CHECKING:
    from rankwise_ray.running import Job, RankFailedError, run, start
    from rankwise_ray.teams import create_group, destroy_group

__all__ = ["BACKEND", "Job", "RankFailedError", "create_group", "destroy_group", "register", "run", "start"]

_OF_TEAMS = "create_group", "destroy_group"


def __getattr__(name: str) -> Any:
    """Load what only drivers use when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rankwise_ray import running, teams

    return getattr(teams if name in _OF_TEAMS else running, name)


register()
