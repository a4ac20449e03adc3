"""What a run has covered, in numbers and in words; and what is declared, and was not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankwise.kits import DTYPES, FEATURES, OPS, REDUCE_OPS
from rankwise_testing.suite.measuring import CellName, Measurements
from rankwise_testing.suite.worlds import REDUCING


@dataclass(frozen=True)
class Coverage:
    """What was run on one kind of device.

    Attributes:
        ops: The operations that were run.
        dtypes: The dtypes that they were run on.
        features: The features that were tried.
        cells: How many declared cells (operation, reduce op and dtype) were run and work.
        declared_cells: How many are declared.
        sizes: Sizes of the worlds.
        variant: The way in which the backend did it; empty for the one that it takes by itself.
        not_run: What is declared, and was not run or does not work: operations, features, dtypes, variants.
    """

    ops: list[str]
    dtypes: list[str]
    features: list[str]
    cells: int
    declared_cells: int
    sizes: list[int]
    variant: str
    not_run: dict[str, list[str]]

    @classmethod
    def of(
        cls, measurements: Measurements, measured: Sequence[CellName], features: Mapping[str, bool], variant: str
    ) -> Coverage:
        """Sum up what was measured."""
        declared = _declared(measurements)
        ran = [name for name in measured if name in declared and measurements.worked(name)]
        ops, dtypes = {op for op, _, _ in ran}, {dtype for _, _, dtype in ran}
        not_run = {
            "operations": [op for op in OPS if op not in ops and any(name[0] == op for name in declared)],
            "dtypes": [d for d in DTYPES if ops and d not in dtypes and any(name[2] == d for name in declared)],
            "features": [name for name in FEATURES if measurements.usable[name] and name not in features],
            "variants": [name for name in measurements.spec.variants if name != variant],
        }
        return cls(
            [op for op in OPS if op in ops],
            [dtype for dtype in DTYPES if dtype in dtypes],
            [name for name in FEATURES if name in features],
            len(ran),
            len(declared),
            sorted(measurements.ranks.sizes),
            variant,
            {kind: names for kind, names in not_run.items() if names},
        )

    @property
    def is_complete(self) -> bool:
        """Whether all that is declared, and not a matter of variants, was run and works."""
        return self.cells == self.declared_cells and not set(self.not_run) - {"variants"}

    def lines(self) -> list[str]:
        """Return it in words."""
        sizes = ", ".join(map(str, self.sizes))
        how = f" in variant {self.variant!r}" if self.variant else ""
        lines = [
            f"{self.cells} of {self.declared_cells} declared cells were run and work: {len(self.ops)} operations on "
            f"{len(self.dtypes)} dtypes; {len(self.features)} features were tried",
            f"worlds of {sizes} ranks{how}",
        ]
        lines += [f"declared, but not run: {kind} {', '.join(names)}" for kind, names in self.not_run.items()]
        return lines


def _declared(measurements: Measurements) -> set[CellName]:
    found: set[CellName] = set()
    for op in OPS:
        for reduce in REDUCE_OPS if op in REDUCING else (None,):
            for dtype in DTYPES if op != "barrier" else ("float32",):
                if measurements.declares(op, reduce, dtype):
                    found.add((op, reduce, dtype))
    return found
