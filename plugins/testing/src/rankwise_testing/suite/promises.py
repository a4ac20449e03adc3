"""What the tests add up to: the promises of a backend, how long it takes to try them, and a result to publish."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from rankwise.kits import Deadline, __version__

#: Each promise, and the modules of the suite that try it; those that are likely to be broken come first.
PROMISES: dict[str, tuple[str, ...]] = {
    "messages arrive as they were sent": ("test_point_to_point", "test_message_dtypes", "test_objects", "test_flow"),
    "results are right": (
        *(
            "test_sizes",
            "test_uneven",
            "test_shapes",
            "test_values",
            "test_arithmetic",
            "test_reductions",
            "test_several_arrays",
        ),
        *("test_drawn", "test_sparse", "test_read_only", "test_strides", "test_memory_orders"),
        "test_dtypes",
    ),
    "works keep their word": ("test_async", "test_callbacks", "test_dropped", "test_noting", "test_threads"),
    "mistakes are told": ("test_mismatch", "test_arguments", "test_joining"),
    "nothing hangs": ("test_abort", "test_timeouts", "test_endings", "test_death"),
    "groups come and go": ("test_groups", "test_outside", "test_reconfigure", "test_lifecycle", "test_memory"),
    "the table tells the truth": ("test_declaration", "test_features", "test_cells"),
}
#: How much processor time a fast run may take, that of its ranks included, and how long it may take in any case.
FAST_S, FAST_WALL_S = 60.0, 300.0
#: The exit status of a run that had no time to try a promise at all.
NOT_TRIED = 6
#: How many tests of each module come in a round of a fast run; cells take little time, and each operation is to come.
_ROUND, _ROUNDS = 4, {"test_cells": 40}
#: How long a test may take in a fast run.
FAST_PATIENCE_S = 20.0
#: What its end needs.
_END_S = 5.0
#: How often it is looked how much time has been taken.
_OFTEN_S = 0.5
#: Seconds that a test takes on a machine of two cores, by module, where that is far from the usual.
_USUAL_S = 0.04
_SECONDS = {
    "test_memory": 3.0,
    "test_timeouts": 0.7,
    "test_death": 2.0,
    "test_endings": 1.0,
    "test_lifecycle": 1.5,
    "test_flow": 0.7,
    "test_dtypes": 0.25,
    "test_values": 0.25,
    "test_threads": 1.0,
    "test_abort": 0.6,
    "test_groups": 0.2,
    "test_sizes": 0.15,
    "test_outside": 0.5,
    "test_features": 0.5,
    "test_joining": 0.7,
    "test_reconfigure": 0.7,
}


def promise_of(module: str) -> str:
    """Return the promise that a module of the suite tries."""
    return next((promise for promise, modules in PROMISES.items() if module in modules), "others")


def order(modules: Iterable[str], fast: bool) -> list[tuple[int, int]]:
    """Return for each test, given its module, its place: promises that are broken first come first.

    In a fast run some tests of every module come, then some more of each.
    """
    places = {module: place for place, module in enumerate(m for of in PROMISES.values() for m in of)}
    seen: dict[str, int] = {}
    found = []
    for module in modules:
        number = seen[module] = seen.get(module, -1) + 1
        found.append((number // _ROUNDS.get(module, _ROUND) if fast else 0, places.get(module, len(places))))
    return found


def processor_s() -> float:
    """Return the processor time of this process and of those that it has started, dead or alive."""
    ticks = sum(_ticks(pid) for pid in _family(os.getpid()))
    return ticks / os.sysconf("SC_CLK_TCK") if ticks else sum(os.times()[:4])


def _family(pid: int) -> Iterator[int]:
    """Yield a process and all that descend from it, as far as the system tells."""
    yield pid
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii").split():
                yield from _family(int(child))


def _ticks(pid: int) -> int:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return sum(map(int, fields[11:15]))  # its own, and that of its children that have ended
    return 0


def estimate_s(modules: Iterable[str]) -> float:
    """Return how long some tests will take, given the module of each."""
    return 5.0 + sum(_SECONDS.get(module, _USUAL_S) for module in modules)


@dataclass
class Progress:
    """How far a run is.

    Attributes:
        budget_s: How much processor time it may take; None for as much as it needs.
        counts: For each promise how many tests passed, failed and were skipped.
        broken_by: For each promise the tests that failed.
        left_out: For each promise how many tests there was no time for.
        end: When the run must have ended, however little it has done.
    """

    budget_s: float | None
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    broken_by: dict[str, list[str]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    end: Deadline | None = None
    _spent: tuple[float, float] = (-_OFTEN_S, 0.0)

    def is_late(self) -> bool:
        """Tell whether there is no time for another test."""
        if self.budget_s is None or self.end is None:
            return False
        if monotonic() - self._spent[0] >= _OFTEN_S:
            self._spent = monotonic(), processor_s()
        return self.end.expired() or self._spent[1] > self.budget_s - _END_S

    def leave_out(self, module: str) -> None:
        """Note that there was no time for a test."""
        promise = promise_of(module)
        self.left_out[promise] = self.left_out.get(promise, 0) + 1

    def note(self, module: str, outcome: str, test: str) -> None:
        """Count a test."""
        promise = promise_of(module)
        counts = self.counts.setdefault(promise, {"passed": 0, "failed": 0, "skipped": 0})
        counts[outcome] += 1
        if outcome == "failed":
            self.broken_by.setdefault(promise, []).append(test)

    @property
    def not_tried(self) -> list[str]:
        """The promises that no test has tried, as there was no time for any."""
        tried = {promise for promise, counts in self.counts.items() if counts["passed"] or counts["failed"]}
        return [promise for promise in PROMISES if promise in self.left_out and promise not in tried]

    def lines(self) -> list[str]:
        """Return the result of each promise in words, with the tests that have shown it broken."""
        lines = []
        for promise in PROMISES:
            counts = self.counts.get(promise)
            if counts is None:
                lines.append(f"  not tried  {promise}")
                continue
            verdict = "BROKEN   " if counts["failed"] else "kept     " if counts["passed"] else "not tried"
            shown = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
            lines.append(f"  {verdict}  {promise} ({shown})")
            lines += [f"             by {test}" for test in self.broken_by.get(promise, [])]
        if self.left_out:
            count = sum(self.left_out.values())
            lines.append(f"{count} tests were not run, as a fast run ends after {self.budget_s:g} s of processor time")
        return lines

    def last_line(self) -> str:
        """Say which promises there was no time for; nothing if each was tried."""
        return f"not tried, for lack of time: {', '.join(self.not_tried)}" if self.not_tried else ""


def write_badge(
    path: Path, backend: str, provider: str, device: str, progress: Progress, coverage: dict[str, Any]
) -> None:
    """Write the result in the form that shields.io takes for a badge, with the details that it ignores."""
    failed = sum(counts["failed"] for counts in progress.counts.values())
    passed = sum(counts["passed"] for counts in progress.counts.values())
    whole = coverage["cells"] == coverage["declared_cells"] and not progress.left_out and bool(passed)
    color = "red" if failed else "brightgreen" if whole else "yellow"
    message = f"{failed} of {passed + failed} tests fail" if failed else f"{passed} tests, {coverage['cells']} cells"
    result = {
        "schemaVersion": 1,
        "label": "rankwise conformance",
        "message": message if whole or failed else f"{message}, not complete",
        "color": color,
        "backend": backend,
        "provider": provider,
        "device": device,
        "rankwise": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "promises": {promise: progress.counts.get(promise) for promise in PROMISES},
        "broken_by": progress.broken_by,
        "covered": coverage,
    }
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
