"""What starts, asks and draws: the face of the core for launchers, commands and tools.

A command is an entry point of the group `rankwise.commands`. `rankwise-launch` and `rankwise-tools` import this module,
`rankwise.backends` and `rankwise.errors`, and nothing else of the core.
"""

from __future__ import annotations

from rankwise.backends.backend import get_default_backend_for_device, is_backend_available
from rankwise.backends.capability import ANY_HOSTS, ANY_SIZE, Capabilities, counted
from rankwise.backends.capability_table import CapabilityTable
from rankwise.backends.cells import Availability, Cell, Support
from rankwise.backends.declaration import BackendSpec, Check, Explanation, Stage
from rankwise.backends.discovery import ENTRY_POINT_GROUP, PluginFault, run_plugin
from rankwise.backends.plain_tables import Memo, cell_of
from rankwise.backends.registry import KNOWN, registry
from rankwise.backends.validation import of_kind, text_of
from rankwise.backends.vocabulary import FEATURES, OPS, REDUCTIONS
from rankwise.basics import entry_points, native
from rankwise.basics.arguments import with_article
from rankwise.basics.arrays import DTYPES
from rankwise.basics.deadline import Deadline
from rankwise.basics.debug import DebugLevel, debug_log, get_debug_level
from rankwise.basics.entry_points import declared, one_line
from rankwise.basics.interrupts import held
from rankwise.basics.loading import loading
from rankwise.basics.recording import Entry
from rankwise.basics.systems import cause, keep_standard, process_stat, shortage, signals
from rankwise.basics.tracebacks import shortened
from rankwise.basics.version import __version__
from rankwise.collective.algorithms import Blocks, Recv, Rounds, Send, distances, fold, rounds, table
from rankwise.collective.algorithms.table import CHOICES, AlgorithmChoice, fitting_algorithm, rooted
from rankwise.groups import observers
from rankwise.groups.handshake import MEETING, death_verdict
from rankwise.groups.process_group import ProcessGroup
from rankwise.groups.world import World, current
from rankwise.store import PrefixStore
from rankwise.store.rendezvous import load_scheme

__all__ = [
    "ANY_HOSTS",
    "ANY_SIZE",
    "AlgorithmChoice",
    "Availability",
    "BackendSpec",
    "Blocks",
    "CHOICES",
    "Capabilities",
    "CapabilityTable",
    "Cell",
    "Check",
    "DTYPES",
    "Deadline",
    "DebugLevel",
    "ENTRY_POINT_GROUP",
    "Entry",
    "Explanation",
    "FEATURES",
    "KNOWN",
    "MEETING",
    "Memo",
    "OPS",
    "PluginFault",
    "PrefixStore",
    "ProcessGroup",
    "REDUCTIONS",
    "Recv",
    "Rounds",
    "Send",
    "Stage",
    "Support",
    "World",
    "__version__",
    "cause",
    "cell_of",
    "counted",
    "current",
    "death_verdict",
    "debug_log",
    "declared",
    "distances",
    "entry_points",
    "fitting_algorithm",
    "fold",
    "get_debug_level",
    "get_default_backend_for_device",
    "held",
    "is_backend_available",
    "keep_standard",
    "load_scheme",
    "loading",
    "native",
    "observers",
    "of_kind",
    "one_line",
    "process_stat",
    "registry",
    "rooted",
    "rounds",
    "run_plugin",
    "shortage",
    "shortened",
    "signals",
    "table",
    "text_of",
    "with_article",
]
