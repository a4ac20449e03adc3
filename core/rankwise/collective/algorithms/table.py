"""Which algorithms there are, what they cost, and which one `rankwise.collective.derived` takes.

The choice must be the same on all ranks, so it depends only on what all ranks know alike. These are the thresholds
for transports whose messages cost some tens of microseconds; a backend may have a table of its own, fitted to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from rankwise.collective.algorithms import Rounds, double_trees, rounds

ALGORITHMS: Mapping[str, Mapping[str, Callable[..., Rounds]]] = MappingProxyType(
    {
        "all_reduce": {
            "recursive_doubling": rounds.all_reduce_recursive_doubling,
            "two_shot": rounds.all_reduce_two_shot,
            "pat": rounds.all_reduce_pat,
            "double_trees": double_trees.all_reduce,
            "ring": rounds.all_reduce_ring,
        },
        "reduce_scatter": {
            "direct": rounds.reduce_scatter_direct,
            "pat": rounds.reduce_scatter_pat,
            "ring": rounds.reduce_scatter_ring,
        },
        "all_gather": {
            "bruck": rounds.all_gather_bruck,
            "direct": rounds.all_gather_direct,
            "ring": rounds.all_gather_ring,
        },
        "broadcast": {
            "flat": rounds.broadcast_flat,
            "binomial": rounds.broadcast_binomial,
            "double_trees": double_trees.broadcast,
        },
        "reduce": {
            "binomial": rounds.reduce_binomial,
            "scatter_gather": rounds.reduce_scatter_gather,
            "pat_gather": rounds.reduce_pat_gather,
            "double_trees": double_trees.reduce,
        },
        "gather": {"flat": rounds.gather_flat, "binomial": rounds.gather_binomial},
        "scatter": {"flat": rounds.scatter_flat, "binomial": rounds.scatter_binomial},
        "all_to_all": {"direct": rounds.all_to_all_direct, "pairwise": rounds.all_to_all_pairwise},
        "barrier": {"dissemination": rounds.barrier_dissemination},
    }
)


class AlgorithmChoice(NamedTuple):
    """Take `name` up to so many bytes, ranks, and bytes for each rank; None is no bound."""

    name: str
    max_nbytes: int | None = None
    max_ranks: int | None = None
    max_share_nbytes: int | None = None


#: For each operation the first that fits. N is the array's size, for parts that of all together. A ring has as many
#: rounds as there are ranks, which pays only where each rank's share takes longer on the wire than a round to begin.
CHOICES: Mapping[str, tuple[AlgorithmChoice, ...]] = MappingProxyType(
    {
        "all_reduce": (
            AlgorithmChoice("recursive_doubling", 16 << 10),
            AlgorithmChoice("two_shot", 16 << 20, 16),
            AlgorithmChoice("pat", 16 << 20),
            AlgorithmChoice("pat", None, None, 64 << 10),
            AlgorithmChoice("ring"),
        ),
        "reduce_scatter": (
            AlgorithmChoice("direct", None, 16),
            AlgorithmChoice("pat", 16 << 20),
            AlgorithmChoice("pat", None, None, 64 << 10),
            AlgorithmChoice("ring"),
        ),
        "all_gather": (
            AlgorithmChoice("direct", None, 4),
            AlgorithmChoice("bruck", 64 << 10),
            AlgorithmChoice("direct", None, 16),
            AlgorithmChoice("bruck", None, None, 64 << 10),
            AlgorithmChoice("ring"),
        ),
        "broadcast": (
            AlgorithmChoice("flat", 12 << 10, 4),
            AlgorithmChoice("binomial", 512 << 10),
            AlgorithmChoice("binomial", None, 4),
            AlgorithmChoice("binomial", None, None, 4 << 10),
            AlgorithmChoice("double_trees"),
        ),
        "reduce": (
            AlgorithmChoice("binomial", 64 << 10),
            AlgorithmChoice("scatter_gather", None, 16),
            AlgorithmChoice("pat_gather", 2 << 20),
            AlgorithmChoice("double_trees"),
        ),
        "gather": (AlgorithmChoice("flat", None, 4), AlgorithmChoice("binomial", 1 << 20), AlgorithmChoice("flat")),
        "scatter": (AlgorithmChoice("flat", None, 4), AlgorithmChoice("binomial", 1 << 20), AlgorithmChoice("flat")),
        "all_to_all": (AlgorithmChoice("direct", None, 16), AlgorithmChoice("pairwise")),
        "barrier": (AlgorithmChoice("dissemination"),),
    }
)


def fitting_algorithm(
    op: str, nbytes: int, size: int, table: Mapping[str, tuple[AlgorithmChoice, ...]] = CHOICES
) -> AlgorithmChoice:
    """Return the line of a table for an operation on `nbytes` bytes and `size` ranks."""
    for choice in table[op]:
        _, most, ranks, share = choice
        fits = (most is None or nbytes <= most) and (ranks is None or size <= ranks)
        if fits and (share is None or nbytes <= share * size):
            return choice
    raise LookupError(f"the table of {op} ends with a bound")


def derived_algorithm(op: str, nbytes: int, size: int) -> str:
    """Return the name of the algorithm for an operation on `nbytes` bytes and `size` ranks."""
    return fitting_algorithm(op, nbytes, size).name


def algorithm(op: str, nbytes: int, size: int) -> Callable[..., Rounds]:
    """Return the algorithm for an operation on `nbytes` bytes and `size` ranks."""
    return ALGORITHMS[op][derived_algorithm(op, nbytes, size)]


def rooted(op: str, root: int) -> tuple[Any, ...]:
    """Return the arguments that algorithms of `op` take after rank and size."""
    return (root,) if op in ("broadcast", "reduce", "gather", "scatter") else ()
