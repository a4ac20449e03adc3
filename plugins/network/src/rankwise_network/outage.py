"""For how long a network may be out of order before the ranks behind it count as out of reach; and such settings."""

from __future__ import annotations

import os
from math import inf

__all__ = ["VARIABLE", "limit_s", "setting"]

VARIABLE = "RANKWISE_OUTAGE_LIMIT_S"
#: The system tries less and less often to get through: after an outage of 8 s up to 16 s may pass until it does.
_LIMIT_S = 20.0


def limit_s() -> float:
    """Return for how long; see `setting`."""
    return setting(VARIABLE, _LIMIT_S)


def setting(name: str, default: float) -> float:
    """Return a number of seconds from the environment; zero or less means without end.

    Raises:
        ValueError: It is no number.
    """
    text = os.environ.get(name)
    try:
        value = float(text) if text else default
    except ValueError:
        raise ValueError(f"{name} is {text!r}, but must be a number of seconds") from None
    return value if value > 0 else inf
