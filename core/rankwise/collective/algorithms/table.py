"""Which algorithms there are, what they cost, and which one `rankwise.collective.derived` takes.

The choice must be the same on all ranks, so it depends only on what all ranks know alike. These are the thresholds
for transports whose messages cost some tens of microseconds; a backend may have a table of its own, fitted to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from rankwise.collective.algorithms import (
    all_gather,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    double_trees,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)
from rankwise.collective.algorithms.steps import Rounds

__all__ = ["ALGORITHMS", "CHOICES", "Choice", "algorithm", "choose", "fitting", "rooted"]

ALGORITHMS: Mapping[str, Mapping[str, Callable[..., Rounds]]] = MappingProxyType(
    {
        "all_reduce": {
            "recursive_doubling": all_reduce.recursive_doubling,
            "two_shot": all_reduce.two_shot,
            "halving_doubling": all_reduce.halving_doubling,
            "pat": all_reduce.pat,
            "double_trees": double_trees.all_reduce,
            "ring": all_reduce.ring,
        },
        "reduce_scatter": {"direct": reduce_scatter.direct, "pat": reduce_scatter.pat, "ring": reduce_scatter.ring},
        "all_gather": {"bruck": all_gather.bruck, "direct": all_gather.direct, "ring": all_gather.ring},
        "broadcast": {
            "flat": broadcast.flat,
            "binomial": broadcast.binomial,
            "scatter_bruck": broadcast.scatter_bruck,
            "scatter_ring": broadcast.scatter_ring,
            "double_trees": double_trees.broadcast,
        },
        "reduce": {
            "binomial": reduce.binomial,
            "scatter_gather": reduce.scatter_gather,
            "pat_gather": reduce.pat_gather,
            "double_trees": double_trees.reduce,
        },
        "gather": {"flat": gather.flat, "binomial": gather.binomial},
        "scatter": {"flat": scatter.flat, "binomial": scatter.binomial},
        "all_to_all": {"direct": all_to_all.direct, "pairwise": all_to_all.pairwise},
        "barrier": {"dissemination": barrier.dissemination},
    }
)


class Choice(NamedTuple):
    """Take `name` up to so many bytes, ranks, and bytes for each rank; None is no bound."""

    name: str
    max_nbytes: int | None = None
    max_ranks: int | None = None
    max_share_nbytes: int | None = None


#: For each operation the first that fits. N is the array's size, for parts that of all together. A ring has as many
#: rounds as there are ranks, which pays only where each rank's share takes longer on the wire than a round to begin.
CHOICES: Mapping[str, tuple[Choice, ...]] = MappingProxyType(
    {
        "all_reduce": (
            Choice("recursive_doubling", 16 << 10),
            Choice("two_shot", 16 << 20, 16),
            Choice("pat", 16 << 20),
            Choice("pat", None, None, 64 << 10),
            Choice("ring"),
        ),
        "reduce_scatter": (
            Choice("direct", None, 16),
            Choice("pat", 16 << 20),
            Choice("pat", None, None, 64 << 10),
            Choice("ring"),
        ),
        "all_gather": (
            Choice("direct", None, 4),
            Choice("bruck", 64 << 10),
            Choice("direct", None, 16),
            Choice("bruck", None, None, 64 << 10),
            Choice("ring"),
        ),
        "broadcast": (
            Choice("flat", 12 << 10, 4),
            Choice("binomial", 512 << 10),
            Choice("binomial", None, 4),
            Choice("binomial", None, None, 4 << 10),
            Choice("double_trees"),
        ),
        "reduce": (
            Choice("binomial", 64 << 10),
            Choice("scatter_gather", None, 16),
            Choice("pat_gather", 2 << 20),
            Choice("double_trees"),
        ),
        "gather": (Choice("flat", None, 4), Choice("binomial", 1 << 20), Choice("flat")),
        "scatter": (Choice("flat", None, 4), Choice("binomial", 1 << 20), Choice("flat")),
        "all_to_all": (Choice("direct", None, 16), Choice("pairwise")),
        "barrier": (Choice("dissemination"),),
    }
)


def fitting(op: str, nbytes: int, size: int, table: Mapping[str, tuple[Choice, ...]] = CHOICES) -> Choice:
    """Return the line of a table for an operation on `nbytes` bytes and `size` ranks."""
    for choice in table[op]:
        share = None if choice.max_share_nbytes is None else choice.max_share_nbytes * size
        bounds = (choice.max_nbytes, nbytes), (choice.max_ranks, size), (share, nbytes)
        if all(bound is None or value <= bound for bound, value in bounds):
            return choice
    raise LookupError(f"the table of {op} ends with a bound")


def choose(op: str, nbytes: int, size: int) -> str:
    """Return the name of the algorithm for an operation on `nbytes` bytes and `size` ranks."""
    return fitting(op, nbytes, size).name


def algorithm(op: str, nbytes: int, size: int) -> Callable[..., Rounds]:
    """Return the algorithm for an operation on `nbytes` bytes and `size` ranks."""
    return ALGORITHMS[op][choose(op, nbytes, size)]


def rooted(op: str, root: int) -> tuple[Any, ...]:
    """Return the arguments that algorithms of `op` take after rank and size."""
    return (root,) if op in ("broadcast", "reduce", "gather", "scatter") else ()
