"""What observes worlds and their groups: the face of the core for `rankwise-watch` and for other watchers.

An observer is an entry point of the group `rankwise.observers`, which stands for a module with the functions of
`Observer`. It imports this module and `rankwise.errors`, and nothing else of the core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankwise.backends.communicator import Communicator
from rankwise.backends.context import Context
from rankwise.basics import entry_points, processes, unasked
from rankwise.basics.debug import DebugLevel, get_debug_level
from rankwise.basics.ending import Ending
from rankwise.basics.interrupts import start_thread
from rankwise.basics.loading import later, loading
from rankwise.basics.messages import pack_error, unpack_error
from rankwise.basics.process_end import process_ending, process_stat
from rankwise.basics.recording import Entry, FlightRecorder, Trail
from rankwise.basics.systems import signals
from rankwise.basics.version import __version__
from rankwise.groups.handshake import MEETING, death_verdict, has_ended, process_space, started_at, told_by
from rankwise.groups.process_group import ProcessGroup
from rankwise.groups.world import World
from rankwise.store import HashStore, PrefixStore, Store, innermost

if TYPE_CHECKING:
    from rankwise.groups.stats import of_group

__all__ = [
    "Communicator",
    "Context",
    "DebugLevel",
    "Ending",
    "Entry",
    "FlightRecorder",
    "HashStore",
    "MEETING",
    "PrefixStore",
    "ProcessGroup",
    "Store",
    "Trail",
    "World",
    "__version__",
    "death_verdict",
    "entry_points",
    "get_debug_level",
    "has_ended",
    "innermost",
    "loading",
    "of_group",
    "pack_error",
    "process_ending",
    "process_space",
    "process_stat",
    "processes",
    "signals",
    "start_thread",
    "started_at",
    "told_by",
    "unasked",
    "unpack_error",
]

#: Until somebody looks at a job, nothing asks for it.
__getattr__ = later(__name__, {"of_group": ("rankwise.groups.stats", "of_group")})
