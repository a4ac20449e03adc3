"""What tests backends and programs: the face of the core for `rankwise-testing`, and for kits of others.

It imports this module, `rankwise.backends` and `rankwise.errors`, and nothing else of the core.
"""

from __future__ import annotations

from rankwise.backends.capability import Capabilities
from rankwise.backends.cells import Cell, Device, Support, derived
from rankwise.backends.communicator import Communicator
from rankwise.backends.contract import Context
from rankwise.backends.declaration import BackendSpec
from rankwise.backends.registry import registry
from rankwise.backends.vocabulary import COLLECTIVES, FEATURES, OPS, POINT_TO_POINT, REDUCTIONS, not_a_name
from rankwise.basics import unasked
from rankwise.basics.arrays import DTYPES, Array, dtype_name, dtype_text
from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.devices import placed
from rankwise.basics.recording import Entry
from rankwise.basics.reduce_op import REDUCE_OP_TABLE, REDUCE_OPS, ReduceOp
from rankwise.basics.systems import cause, signals
from rankwise.basics.version import __version__
from rankwise.basics.work import COMPLETED, FutureWork, Work
from rankwise.collective.algorithms import Blocks, Recv, Round, Rounds, Send
from rankwise.collective.algorithms.table import rooted
from rankwise.groups.lifecycle import leave_everything
from rankwise.groups.process_group import GroupLike, ProcessGroup
from rankwise.groups.world import World, current, use
from rankwise.store import HashStore, PrefixStore, Store

__all__ = [
    "Array",
    "BackendSpec",
    "Blocks",
    "COLLECTIVES",
    "COMPLETED",
    "Capabilities",
    "Cell",
    "Communicator",
    "Context",
    "DTYPES",
    "Deadline",
    "Device",
    "Entry",
    "FEATURES",
    "FutureWork",
    "GroupLike",
    "HashStore",
    "OPS",
    "POINT_TO_POINT",
    "PrefixStore",
    "ProcessGroup",
    "REDUCE_OPS",
    "REDUCE_OP_TABLE",
    "REDUCTIONS",
    "Recv",
    "ReduceOp",
    "Round",
    "Rounds",
    "Send",
    "Store",
    "Support",
    "Timeout",
    "Work",
    "World",
    "__version__",
    "cause",
    "current",
    "derived",
    "dtype_name",
    "dtype_text",
    "leave_everything",
    "not_a_name",
    "placed",
    "registry",
    "rooted",
    "seconds",
    "signals",
    "unasked",
    "use",
]
