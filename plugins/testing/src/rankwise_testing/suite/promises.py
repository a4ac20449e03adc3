"""What the tests add up to: the promises of a backend, how long it takes to try them, and a result to publish."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankwise.kits import Deadline, __version__

__all__ = ["FAST_PATIENCE_S", "FAST_S", "PROMISES", "Progress", "estimate_s", "order", "write_badge"]

#: Each promise, and the modules of the suite that try it; those that are likely to be broken come first.
PROMISES: dict[str, tuple[str, ...]] = {
    "messages arrive as they were sent": ("test_point_to_point", "test_message_dtypes", "test_objects", "test_flow"),
    "results are right": (
        *("test_sizes", "test_uneven", "test_shapes", "test_values", "test_arithmetic", "test_reductions", "test_several_arrays"),
        *("test_drawn", "test_sparse", "test_read_only", "test_strides", "test_dtypes"),
    ),
    "works keep their word": ("test_async", "test_callbacks", "test_dropped", "test_noting", "test_threads"),
    "mistakes are told": ("test_mismatch", "test_arguments", "test_joining"),
    "nothing hangs": ("test_abort", "test_timeouts", "test_endings", "test_death"),
    "groups come and go": ("test_groups", "test_outside", "test_lifecycle", "test_memory"),
    "the table tells the truth": ("test_declaration", "test_features", "test_cells"),
}
#: How long a fast run may take in all.
FAST_S = 120.0
#: How long a test may take in a fast run.
FAST_PATIENCE_S = 20.0
#: What its end needs.
_END_S = 10.0
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
}


def promise_of(module: str) -> str:
    """Return the promise that a module of the suite tries."""
    return next((promise for promise, modules in PROMISES.items() if module in modules), "others")


def order(modules: Iterable[str]) -> dict[str, int]:
    """Return for each module its place: the promises that are broken first come first."""
    places = [module for modules_of in PROMISES.values() for module in modules_of]
    return {module: places.index(module) if module in places else len(places) for module in modules}


def estimate_s(modules: Iterable[str]) -> float:
    """Return how long some tests will take, given the module of each."""
    return 5.0 + sum(_SECONDS.get(module, _USUAL_S) for module in modules)


@dataclass
class Progress:
    """How far a run is.

    Attributes:
        budget_s: How long it may take; None for as long as it needs.
        counts: For each promise how many tests passed, failed and were skipped.
        left_out: How many tests there was no time for.
    """

    budget_s: float | None
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    left_out: int = 0
    end: Deadline | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.budget_s is not None:
            self.end = Deadline(self.budget_s - _END_S)

    def is_late(self) -> bool:
        """Tell whether there is no time for another test."""
        return self.end is not None and self.end.expired()

    def note(self, module: str, outcome: str) -> None:
        """Count a test."""
        counts = self.counts.setdefault(promise_of(module), {"passed": 0, "failed": 0, "skipped": 0})
        counts[outcome] += 1

    def lines(self) -> list[str]:
        """Return the result of each promise in words."""
        lines = []
        for promise in PROMISES:
            counts = self.counts.get(promise)
            if counts is None:
                lines.append(f"  not tried  {promise}")
                continue
            verdict = "BROKEN   " if counts["failed"] else "kept     " if counts["passed"] else "not tried"
            shown = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
            lines.append(f"  {verdict}  {promise} ({shown})")
        if self.left_out:
            lines.append(f"{self.left_out} tests were not run, as a fast run ends after {self.budget_s:g} s")
        return lines


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
        "covered": coverage,
    }
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
