"""Which algorithm runs: by the tables, or as the program says, for experiments; the same on all ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

# Ranks of one host choose by no table, and load none.

#: For example "all_reduce=streamed broadcast=derived".
_VARIABLE = "RANKWISE_GLOO_ALGORITHMS"


class Selection:
    """The choices of one group.

    Args:
        forced: The algorithm of some operations, whatever the tables say.
    """

    __slots__ = ("forced",)

    def __init__(self, forced: Mapping[str, str]) -> None:
        self.forced = dict(forced)

    def choose(self, op: str, nbytes: int, size: int) -> str:
        """Return the algorithm between hosts of one rank each."""
        from rankwise.backends import fitting_algorithm
        from rankwise_gloo_tcp.collectives.tables import NETWORK

        return self.forced.get(op) or fitting_algorithm(op, nbytes, size, NETWORK).name

    def choose_mixed(self, op: str, nbytes: int, size: int) -> str:
        """Return the algorithm among hosts of several ranks; where a forced one is for other groups, the table's."""
        from rankwise.backends import fitting_algorithm
        from rankwise_gloo_tcp.collectives.tables import MIXED

        forced = self.forced.get(op)
        if forced in {choice.name for choice in MIXED[op]} | {"derived"}:
            return str(forced)
        return fitting_algorithm(op, nbytes, size, MIXED).name

    def __str__(self) -> str:
        return " ".join(f"{op}={name}" for op, name in sorted(self.forced.items()))


def load(options: Mapping[str, Any]) -> Selection:
    """Return the choices that `pg_options={"algorithms": {op: name}}` or else the environment ask for.

    Raises:
        ValueError: An operation or an algorithm does not exist.
    """
    given = options.get("algorithms", {})
    if unknown := set(options) - {"algorithms"}:
        raise ValueError(f"pg_options has {', '.join(map(repr, sorted(unknown)))}; there is 'algorithms'")
    words = os.environ.get(_VARIABLE, "").replace(",", " ").split()
    forced = {**dict(word.partition("=")[::2] for word in words), **given}
    if forced:
        _require_all(forced)
    return Selection(forced)


def _require_all(forced: Mapping[str, str]) -> None:
    from rankwise_gloo_tcp.collectives.tables import MIXED, NETWORK

    for op, name in forced.items():
        if op not in NETWORK:
            raise ValueError(f"{op}={name}: there is no operation {op!r}; there are {', '.join(NETWORK)}")
        names = dict.fromkeys(choice.name for choice in (*NETWORK[op], *MIXED[op]))
        if name not in names:
            raise ValueError(f"{op}={name}: there is no algorithm {name!r}; there are {', '.join(names)}")
