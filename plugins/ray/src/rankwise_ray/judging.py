"""What callers may give, judged before a cluster is asked: a wrong number breaks the books of Ray's nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any


def string(name: str, value: Any) -> str:
    """Return a string that is not empty."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {value!r:.100}")
    if not value:
        raise ValueError(f"{name} must not be empty")
    return value


def backend(value: Any) -> str | None:
    """Return the name of a backend; None for the default ones."""
    return None if value is None else string("backend", value)


def one_of(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return one of some strings."""
    if string(name, value) not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r:.100}")
    return str(value)


def sequence(name: str, value: Any, of: str) -> list[Any]:
    """Return a sequence as a list; a string is none."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise TypeError(f"{name} must be a sequence of {of}, not {value!r:.100}")
    return list(value)


def needs(resources: Any) -> dict[str, float]:
    """Return what each rank needs, by the names of Ray's resources: one CPU, if nothing is said."""
    if resources is None:
        return {"CPU": 1}
    if not isinstance(resources, Mapping):
        raise TypeError(f"resources must be a mapping such as {{'CPU': 2}}, not {resources!r:.100}")
    found = {string("resources: a name", name): _amount(name, amount) for name, amount in resources.items()}
    if not any(found.values()):
        raise ValueError("resources: a rank needs some of at least one resource, such as {'CPU': 0.5}")
    return found


def _amount(name: str, amount: Any) -> float:
    if isinstance(amount, bool) or not isinstance(amount, Real):
        raise TypeError(f"resources: the amount of {name} must be a number, not {amount!r:.100}")
    number = float(amount)
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"resources: the amount of {name} must be finite and not negative, not {amount}")
    if name == "GPU" and number > 1 and not number.is_integer():
        raise ValueError(f"resources: the amount of GPU must be a whole number if it is more than 1, not {amount}")
    return int(number) if number.is_integer() else number
