"""Ranks of rankwise on the workers of a Dask cluster."""

from rankwise_dask.blocks import map_ranks
from rankwise_dask.gang import Gang, run, start

__all__ = ["Gang", "map_ranks", "run", "start"]
