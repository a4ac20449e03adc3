"""The backend `nccl` on the double, for the conformance suite: `--backend nccl --plugin-module nccl_on_host`.

All ranks are threads, or processes that meet in a folder. Each has a double of its own, which is kept with its world.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cupy  # the stand-in
from double import Rank
from fabric import Fabric, Folder

from rankwise.backends.communicator import Communicator
from rankwise.backends.contract import Context
from rankwise.backends.declaration import Availability, BackendSpec
from rankwise.groups.world import current
from rankwise_nccl import plugin
from rankwise_nccl.communicator import NcclCommunicator
from rankwise_nccl.library.api import Api
from rankwise_nccl.operations import reducer

#: Where ranks meet that are processes; without it, they are threads of one.
FOLDER = "RANKWISE_TESTS_NCCL_FOLDER"

_FABRIC = Folder(Path(os.environ[FOLDER])) if FOLDER in os.environ else Fabric()


def rank_here() -> Rank:
    """Return the double of this context's rank."""
    state = current().__dict__
    if "double" not in state:
        state["double"] = _made()
    found: Rank = state["double"]
    return found


def _made() -> Rank:
    rank = Rank(_FABRIC)
    cuda = rank.api.cuda
    # Which device is current is known to the stand-in, whose devices share their streams.
    cuda.Device, cuda.runtime.getDevice = cupy.cuda.Device, cupy.cuda.runtime.getDevice
    of_device = cuda.get_current_stream
    cuda.get_current_stream = lambda device_id=-1: of_device(0)
    return rank


def create(context: Context) -> Communicator:
    """Make a communicator on the double of this rank."""
    rank = rank_here()
    communicator = NcclCommunicator(
        context, Api(SimpleNamespace(empty=cupy.empty), rank.api.cuda, rank.api.nccl, rank.api.relax)
    )
    if context.device_index is not None:
        communicator.start(context.device_index)
    return communicator


@contextmanager
def premultiplied(comm: Any, factor: Any, dtype: Any, datatype: int) -> Iterator[int]:
    """Stand for the op that the library makes."""
    yield comm.scaling(factor)


def rankwise_backend() -> BackendSpec:
    """Return the declaration of the plugin, with the double behind it."""
    reducer.premultiplied = premultiplied
    cupy.cuda.get_current_stream = lambda device_id=-1: rank_here().api.cuda.get_current_stream()
    cupy.cuda.Stream = lambda **terms: rank_here().api.cuda.Stream(**terms)
    return replace(
        plugin.rankwise_backend(), create=create, availability=lambda: Availability(True), launch=("threads",)
    )
