"""What observes worlds and their groups: the face of the core for `rankwise-watch` and for other watchers.

An observer is an entry point of the group `rankwise.observers`, which stands for a module with the functions of
`Observer`. It imports this module and `rankwise.errors`, and nothing else of the core.
"""

from __future__ import annotations

from rankwise.backends.communicator import Communicator
from rankwise.backends.contract import Context
from rankwise.basics import entry_points, rich_display, unasked
from rankwise.basics.debug import DebugLevel, get_debug_level
from rankwise.basics.ending import Ending
from rankwise.basics.interrupts import start_thread
from rankwise.basics.loading import loading
from rankwise.basics.messages import pack_error, unpack_error
from rankwise.basics.recording import Entry, FlightRecorder, SilentRecorder, Ticket, Totals, Trail
from rankwise.basics.systems import process_stat, signals
from rankwise.basics.tracebacks import is_skipped, known_inside, known_outside, shortened
from rankwise.basics.version import __version__
from rankwise.groups.handshake import MEETING, death_verdict, is_gone, process_space, started_at, told_by
from rankwise.groups.process_group import GroupLike, ProcessGroup
from rankwise.groups.world import World, current, resolve
from rankwise.store import HashStore, PrefixStore, Store, innermost

__all__ = [
    "Communicator",
    "Context",
    "DebugLevel",
    "Ending",
    "Entry",
    "FlightRecorder",
    "GroupLike",
    "HashStore",
    "MEETING",
    "PrefixStore",
    "ProcessGroup",
    "SilentRecorder",
    "Store",
    "Ticket",
    "Totals",
    "Trail",
    "World",
    "__version__",
    "current",
    "death_verdict",
    "entry_points",
    "get_debug_level",
    "innermost",
    "is_gone",
    "is_skipped",
    "known_inside",
    "known_outside",
    "loading",
    "pack_error",
    "process_space",
    "process_stat",
    "resolve",
    "rich_display",
    "shortened",
    "signals",
    "start_thread",
    "started_at",
    "told_by",
    "unasked",
    "unpack_error",
]
