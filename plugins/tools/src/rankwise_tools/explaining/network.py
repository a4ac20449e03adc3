"""The parameters of a network: fitted to measured messages, kept in a file, and what they predict for a collective."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rankwise.launching import Explanation, Stage
from rankwise_tools.explaining.algorithms import ALGORITHMS
from rankwise_tools.explaining.costs import Network
from rankwise_tools.explaining.simulator import simulate

#: From here on the rate of a link decides, and not what passes in one piece.
LONG_NBYTES = 256 << 10


class Sample(NamedTuple):
    """A message of so many bytes, and how long it takes."""

    nbytes: int
    seconds: float


class Parameters(NamedTuple):
    """What `rankwise explain` takes for the network; a message costs both ends `message_us`, besides its bytes."""

    alpha_us: float
    gbit_per_s: float
    combine_gb_per_s: float
    message_us: float = 0.0

    @property
    def seconds(self) -> Network:
        """The same in seconds."""
        return Network(
            self.alpha_us * 1e-6, 8e-9 / self.gbit_per_s, 1e-9 / self.combine_gb_per_s, self.message_us * 1e-6
        )

    def save(self, path: Path) -> None:
        """Write them, for `load`."""
        # opens: files that a command line, or a launcher's variable, names
        path.write_text(json.dumps(self._asdict(), indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> Parameters:
        """Read what was saved.

        Raises:
            ValueError: The file is none of these.
        """
        try:
            told: Any = json.loads(path.read_text())
            if not isinstance(told, dict) or not told.keys() <= set(cls._fields):
                raise ValueError(f"it must have {', '.join(cls._fields)}, and nothing else")
            return cls(**{name: float(value) for name, value in told.items()})
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(f"{path} tells no network, as `python -m rankwise_tools.fit` saves it: {error}") from error


class Line(NamedTuple):
    """A collective that was measured; `predicted_s` is None where the model does not know its algorithm."""

    op: str
    nbytes: int
    algorithm: str
    measured_s: float
    predicted_s: float | None


def fitted(samples: Sequence[Sample], combine_gb_per_s: float, message_us: float) -> Parameters:
    """Fit the latency to the shortest messages, and the rate to the long ones, to their middle."""
    shortest = min(samples)
    rates = [(each.seconds - shortest.seconds) / each.nbytes for each in samples if each.nbytes >= LONG_NBYTES]
    # A message's own cost is part of what it takes to arrive.
    alpha_us = max(0.0, shortest.seconds * 1e6 - message_us)
    return Parameters(alpha_us, 8e-9 / max(median(rates), 1e-15), combine_gb_per_s, message_us)


def predicted(op: str, nbytes: int, size: int, explained: Explanation, network: Parameters) -> float | None:
    """Return how long a collective takes by the model, None for an algorithm that it does not know."""
    alone = (Stage(op, explained.like, size, nbytes),) if explained.like else ()
    stages = explained.stages or alone
    return sum(_seconds(stage, network.seconds) for stage in stages) if stages else None


def _seconds(stage: Stage, network: Network) -> float:
    if not stage.op:
        return stage.nbytes * network.gamma_s
    parts = [stage.nbytes // stage.size + (rank < stage.nbytes % stage.size) for rank in range(stage.size)]
    return simulate(stage.op, ALGORITHMS[stage.op][stage.algorithm], parts, network)


def off_by(lines: Sequence[Line]) -> tuple[float, float] | None:
    """Return by which factor predictions are off, in the middle and at most; None where nothing was predicted."""
    ratios = [line.measured_s / line.predicted_s for line in lines if line.predicted_s]
    factors = [math.exp(abs(math.log(ratio))) for ratio in ratios]
    return (median(factors), max(factors)) if factors else None
