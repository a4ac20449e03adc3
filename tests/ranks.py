"""What tests of ranks that are processes share: their pools, how they begin, and the third-party example as backend."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rankwise as dist
from rankwise.backends.registry import registry
from rankwise_testing import RankPool

MESH = Path(__file__).parent / "third_party" / "src" / "rankwise_mesh" / "__init__.py"


def pool_of(size: int) -> Any:
    """Return a fixture: the pool of a module."""

    @pytest.fixture(scope="module")
    def pool() -> Iterator[RankPool]:
        with RankPool(size) as made:
            yield made

    return pool


def use_mesh() -> None:
    """Register the third-party example in this process, where it is not installed."""
    if "mesh" not in registry.names():
        spec = importlib.util.spec_from_file_location("rankwise_mesh", MESH)
        module = sys.modules["rankwise_mesh"] = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        registry.register(module.rankwise_backend())


def rank_and_size() -> tuple[int, int]:
    """Return what the environment tells of a rank's place."""
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def begin(
    backend: str, address: str, timeout_s: float, rank: int | None = None, size: int | None = None
) -> tuple[str, str, float]:
    """Begin a world and end it; return the kind and the text of the error, if any, and how long that took."""
    mine, all_ = rank_and_size()
    place = {"rank": mine if rank is None else rank, "world_size": size or all_}
    began, kind, text = time.monotonic(), "none", ""
    try:
        dist.init_process_group(backend, address, timeout=timeout_s, **place)
    except Exception as error:
        kind, text = type(error).__name__, str(error)
    took_s = time.monotonic() - began
    assert dist.is_initialized() == (kind == "none")
    if kind == "none":
        dist.destroy_process_group()
    return kind, text, took_s
