"""The rows of docs/where-to-change.md that are tried: what is changed, and a program that has the change.

A row's changes are only in files that the row names. What it has in its last column, such as pages, comes apart from
what makes the thing work: so one sees which test asks for it.
"""

from __future__ import annotations

import trials_around_it as around
import trials_of_the_core as core
from trial import Trial

__all__ = ["TRIALS", "UNTRIED", "Trial"]

TRIALS = {trial.row: trial for room in (core, around) for name in room.__all__ if (trial := getattr(room, name))}

_SAYS_WHERE = "it says where something is that may change in many ways; nothing is added to it"
_COMPILED = "it needs a compiler, and the whole of `rankwise-native` built again"

#: The rows that are not tried, each with the reason.
UNTRIED = {
    "a new algorithm of gloo": "its line in a table is a measured threshold",
    "a new transport for gloo": "tests/plugins/gloo_tcp/protocol/test_third_transport.py runs an engine over one",
    "a new backend": "tests/conformance/test_new_backend.py makes one",
    "a new program of the gallery": "tests/examples/test_gallery.py asks for its entry and the one over mpi4py",
    "a new kind of device": "tests/devices/test_devices.py has one that the core does not know",
    "how groups use other libraries' stores": _SAYS_WHERE,
    "the file of a `FileStore`": _SAYS_WHERE,
    "another count or time that is shown": _COMPILED,
    "a feature that only Linux has": "tests/portability removes each that there is",
    "who may stand at a listener, how many and for how long": _SAYS_WHERE,
    "how command lines are read and told": _SAYS_WHERE,
    "`spawn`": _SAYS_WHERE,
    "which nodes a job has, and when it has failed": "tests/core/test_launch_roster.py has its model",
    "how processes of an elastic job agree on its members": "tests/plugins/elastic has its model and mistakes in it",
    "what Ray calls": "it needs Ray, and a cluster",
    "what torch's programs call": "it needs torch; tests/plugins/torch/test_surface.py asks for each method",
    "a call that a backend prepares once for its kind": "tests/core/test_fast_calls.py has communicators that do so",
    "a compiled shortcut": _COMPILED,
    "the layout of shared memory": _COMPILED,
    "another frame of gloo": _SAYS_WHERE,
}
