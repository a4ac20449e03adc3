"""Runs that were saved, and what has become slower or faster since, beyond what one run differs from the next."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rankwise_launch.toolbox import CommandError, format_nbytes, format_seconds

FORMAT = 1
#: A change of less than this is none, however quiet the machine was.
_LEAST = 0.05
#: How many times the noise a change must be.
_TIMES = 3.0
#: From the median deviation to that of a normal distribution.
_SCALE = 1.4826

Result = Mapping[str, Any]


class Saved(NamedTuple):
    """A run that was saved.

    Attributes:
        about: Where it was measured.
        results: What was found.
    """

    about: Mapping[str, Any]
    results: Sequence[Result]


class Change(NamedTuple):
    """How long one operation of one size takes, and took.

    Attributes:
        what: Library, operation and size.
        now_s: Its median.
        then_s: What that was.
        noise: By which part of the time runs differ by themselves.
        least_ratio: How many times as long it takes at its fastest. Others on a machine make some calls slow, but
            hardly all.
    """

    what: str
    now_s: float
    then_s: float
    noise: float
    least_ratio: float

    @property
    def ratio(self) -> float:
        """How many times as long it takes."""
        return self.now_s / self.then_s

    @property
    def is_slower(self) -> bool:
        """Whether it takes longer, beyond the noise."""
        return self.ratio > 1 + max(_LEAST, _TIMES * self.noise) and self.least_ratio > 1 + max(_LEAST, self.noise)

    @property
    def is_faster(self) -> bool:
        """Whether it takes less long, beyond the noise."""
        return 1 / self.ratio > 1 + max(_LEAST, _TIMES * self.noise) and 1 / self.least_ratio > 1 + max(
            _LEAST, self.noise
        )


def save(path: Path, about: Mapping[str, Any], results: Sequence[Result]) -> None:
    """Write a run to a file."""
    told = {"rankwise_bench": FORMAT, **about, "results": list(results)}
    # opens: files that a command line, or a launcher's variable, names
    path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> Saved:
    """Return a saved run.

    Raises:
        CommandError: The file is none.
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(told, dict) or told.get("rankwise_bench") != FORMAT:
            raise ValueError("it has not been written by `rankwise bench --save` of this version")
        results = [_checked(result) for result in told.pop("results")]
        return Saved({name: value for name, value in told.items() if name != "rankwise_bench"}, results)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}", 2) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path} is no saved run: {error}", 2) from error


def _checked(result: Any) -> Result:
    batches = [float(seconds) for seconds in result["batches_s"]]
    if not batches or min(batches) <= 0:
        raise ValueError("a result has no times")
    return {**{name: result[name] for name in ("library", "op", "ranks", "nbytes")}, "batches_s": batches}


def noise(batches_s: Sequence[float]) -> float:
    """Return by which part of the median the batches of a run differ from it, as a standard deviation."""
    middle = median(batches_s)
    return _SCALE * median(abs(seconds - middle) for seconds in batches_s) / middle


def changes(now: Sequence[Result], then: Sequence[Result]) -> list[Change]:
    """Return what can be compared, in the order of the new run."""
    before = {_key(result): result for result in then}
    found = []
    for result in now:
        old = before.get(_key(result))
        if old is not None:
            batches, older = result["batches_s"], old["batches_s"]
            doubt = math.hypot(noise(batches), noise(older))
            least = min(batches) / min(older)
            found.append(Change(_name(result), median(batches), median(older), doubt, least))
    return found


def verdict(found: Sequence[Change]) -> str:
    """Say what has changed."""
    lines = []
    for word, chosen in (
        ("slower", [change for change in found if change.is_slower]),
        ("faster", [change for change in found if change.is_faster]),
    ):
        for change in sorted(chosen, key=lambda change: -abs(math.log(change.ratio))):
            lines.append(
                f"{word}: {change.what} takes {format_seconds(change.now_s)}, was {format_seconds(change.then_s)}: "
                f"{_part(change.ratio - 1)} (noise {change.noise:.0%})"
            )
    same = sum(not (change.is_slower or change.is_faster) for change in found)
    lines.append(f"the same but for noise: {same} of {len(found)}")
    return "\n".join(lines)


def elsewhere(now: Mapping[str, Any], then: Mapping[str, Any]) -> str:
    """Say what differs between where two runs were measured, or nothing."""
    names = [name for name in now if name in then and now[name] != then[name]]
    return ", ".join(f"{name}: {now[name]}, was {then[name]}" for name in names)


def _part(more: float) -> str:
    """Say by which part something has changed; from twice as long on, how many times as long it takes."""
    return f"{more:+.0%}" if more < 1 else f"{more + 1:.3g} times as long"


def _key(result: Result) -> tuple[Any, ...]:
    return result["library"], result["op"], result["ranks"], result["nbytes"]


def _name(result: Result) -> str:
    size = f" of {format_nbytes(result['nbytes'])}" if result["nbytes"] else ""
    return f"{result['library']} {result['op']}{size}"
