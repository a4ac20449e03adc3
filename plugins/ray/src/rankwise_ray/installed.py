"""What is used of the installed Ray; one that is too old is told in words."""

from __future__ import annotations

import ray

try:
    from ray.experimental import internal_kv
    from ray.util.collective import backend_registry, types
    from ray.util.collective.collective_group.base_collective_group import BaseGroup
except ImportError as error:
    raise ImportError(
        f"rankwise-ray needs a Ray whose ray.util.collective takes backends from outside, 2.60 or later; this is "
        f"{ray.__version__}: {error}"
    ) from error

__all__ = ["BaseGroup", "backend_registry", "internal_kv", "types"]
