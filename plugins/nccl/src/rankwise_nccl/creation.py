"""How a group gets its communicator: now if the program has named the device, else with the first operation."""

from __future__ import annotations

from rankwise.backends import Communicator, Context
from rankwise_nccl.communicator import NcclCommunicator
from rankwise_nccl.library.api import Api


def create(context: Context) -> Communicator:
    """Make the communicator of one group; with `device_id` given, NCCL has started when this returns."""
    communicator = NcclCommunicator(context, Api.installed())
    if context.device_index is not None:
        communicator.start(context.device_index)
    return communicator
