"""For how long a network may be out of order before who is behind it counts as out of reach."""

from __future__ import annotations

import os
from math import inf

__all__ = ["VARIABLE", "limit_s"]

VARIABLE = "RANKWISE_OUTAGE_LIMIT_S"
#: The system tries less and less often to get through: after an outage of 8 s up to 16 s may pass until it does.
_LIMIT_S = 20.0


def limit_s() -> float:
    """Return what is set, or the default; zero or less means for ever.

    Raises:
        ValueError: What is set is no number.
    """
    text = os.environ.get(VARIABLE)
    try:
        value = float(text) if text else _LIMIT_S
    except ValueError:
        raise ValueError(f"{VARIABLE} is {text!r}, but must be a number of seconds") from None
    return value if value > 0 else inf
