"""Which algorithm each collective takes, by the number of hosts, ranks and bytes; and what `rankwise explain` says.

The choice must be the same on all ranks, so it depends only on what all ranks know alike. The lines of `NETWORK` are
fitted by `benchmarks/fit_selection.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from rankwise.backends import AlgorithmChoice as Choice
from rankwise.backends import Explanation, Stage, derived_algorithm
from rankwise.backends import compiled_parts as native
from rankwise.backends import fitting_algorithm as fitting

#: How much data goes with the comparison of the calls at the most where hosts have several ranks: among a few hosts,
#: each of which says how long its data is, and among more.
_FEW_HOSTS, _ALONG_NBYTES, _ALONG_MANY_NBYTES = 8, 448 << 10, 2 << 10

#: What a rank tells of its call.
_RECORD_NBYTES = 40

Table: TypeAlias = Mapping[str, tuple[Choice, ...]]

#: Between hosts of one rank each. The names are those of `_MEANINGS`.
NETWORK: Table = MappingProxyType(
    {
        "all_reduce": (
            Choice("along", 1 << 20, 2),
            *(Choice("along", (128 << 10) // (ranks - 1), ranks) for ranks in (3, 5)),
            Choice("along", 16 << 10, 8),
            Choice("streamed", None, 16),
            Choice("derived"),
        ),
        "reduce_scatter": (Choice("along", 256 << 10, 8), Choice("streamed", None, 8), Choice("derived")),
        "broadcast": (
            Choice("along", 1 << 20, 2),
            Choice("segments", None, 2),
            Choice("along", 64 << 10, 8),
            Choice("derived"),
        ),
        "reduce": (*(Choice("along", (256 << 10) // (ranks - 1), ranks) for ranks in (2, 3, 5, 8)), Choice("derived")),
        "barrier": (Choice("along", None, 8), Choice("derived")),
        **{
            op: (Choice("direct", None, 8), Choice("derived"))
            for op in ("all_gather", "gather", "scatter", "all_to_all")
        },
    }
)
#: What all ranks have the first ranks of the hosts reduce, one after the other; the more they are the sooner it pays to
#: divide it.
_REDUCED_ALONG = (
    Choice("along", _ALONG_NBYTES, 8),
    *(Choice("along", (2 << 20) // ranks, ranks) for ranks in (16, 32)),
    Choice("along", 32 << 10),
)
#: Among hosts of which some have several ranks.
MIXED: Table = MappingProxyType(
    {
        "all_reduce": (*_REDUCED_ALONG, Choice("hosts")),
        "broadcast": (
            Choice("along", _ALONG_NBYTES, 16),
            Choice("along", 128 << 10, 32),
            Choice("along", 32 << 10),
            Choice("hosts"),
        ),
        "barrier": (Choice("along"),),
        "reduce": (*_REDUCED_ALONG, Choice("hosts")),
        # Where all parts are of one size.
        "all_gather": (Choice("along", _ALONG_NBYTES), Choice("hosts")),
        "reduce_scatter": (*_REDUCED_ALONG, Choice("hosts")),
        # Where each rank's parts are of one size; else straight to each rank of the other hosts.
        **{
            op: (Choice("along", _ALONG_NBYTES), Choice("hosts", None, 8), Choice("derived"))
            for op in ("gather", "scatter", "all_to_all")
        },
    }
)

_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "one_shot": "through shared memory: each rank reads what all have written, and reduces it",
        "two_shot": "through shared memory: each rank reduces its share of each block; results are read where wanted",
        "combine": "through shared memory: the ranks that get a result reduce what the others have written, in pieces",
        "board": "through shared memory: each rank writes what others want, in pieces, and reads what it wants",
        "fetch": "each rank copies out of the memory of the others, whose addresses it gets through shared memory",
        "along": "the data goes with the comparison of the calls",
        "streamed": "each rank reduces its share, in segments, and sends it on while others come",
        "segments": "the root sends it in segments, a few of them ahead",
        "direct": "all ranks send to all ranks directly",
        "hosts": "shared memory inside each host, its ranks side by side between hosts",
        "derived": "the collective is derived from send and receive, by a table of its own",
        "alone": "there is no other rank",
    }
)
#: Which algorithm of the core sends the same messages as one of ours, by operation; and along
#: with the comparison of two ranks' calls, where each tells the other.
_LIKE = {
    ("streamed", "all_reduce"): "two_shot",
    ("streamed", "reduce_scatter"): "direct",
    ("segments", "broadcast"): "flat",
}
_LIKE_OF_TWO = {
    "all_reduce": "recursive_doubling",
    "reduce_scatter": "direct",
    "broadcast": "flat",
    "barrier": "dissemination",
}


def along_nbytes(hosts: Sequence[int]) -> int:
    """Return how much data goes with the comparison of the calls of hosts of so many ranks each at the most.

    The rows of all hosts are messages that go along, and all records and the result have their place at every board.
    """
    from rankwise_gloo_tcp.board.board import least_area_nbytes
    from rankwise_gloo_tcp.collectives.opening import inline_nbytes

    if len(hosts) > _FEW_HOSTS:
        return _ALONG_MANY_NBYTES
    in_a_row = inline_nbytes(len(hosts)) - _RECORD_NBYTES * max(hosts)
    at_a_board = least_area_nbytes(max(hosts)) - _RECORD_NBYTES * sum(hosts)
    return max(_ALONG_MANY_NBYTES, min(_ALONG_NBYTES, in_a_row, at_a_board) & -64)


def longest_along(op: str, table: Table, most_nbytes: int, goes_along: Callable[[int], bool]) -> int:
    """Return up to how many bytes `goes_along` says yes: a bound of the table, or as much as may; -1 for never."""
    bounds = {0, most_nbytes, *[min(line.max_nbytes or 0, most_nbytes) for line in table[op]]}
    return next(filter(goes_along, sorted(bounds, reverse=True)), -1)


def of_one_rank(op: str, nbytes: int, size: int) -> int:
    """Return how long the data of a call may be if so much goes along: the parts of all ranks do for an all_to_all."""
    return nbytes // size if op == "all_to_all" else nbytes


def explain(op: str, nbytes: int, hosts: Sequence[int]) -> Explanation:
    """Say which algorithm `op` takes on `nbytes` bytes among so many ranks on each host.

    On one host that is what happens where the system lets ranks share memory, and read that of each other.
    """
    size = sum(hosts)
    if size == 1:
        table: Sequence[Choice] = (Choice("alone"),)
    elif len(hosts) == 1:
        table = _on_one_host(op, size)
    else:
        most = of_one_rank(op, along_nbytes(hosts), size)
        table = NETWORK[op] if len(hosts) == size else [_within(choice, most) for choice in MIXED[op]]
    taken = fitting(op, nbytes, size, {op: tuple(table)})
    derived = len(hosts) > 1 and taken.name in ("derived", "direct")
    like = derived_algorithm(op, nbytes, size) if derived else _LIKE.get((taken.name, op), "")
    if taken.name == "along" and size == 2:
        like = _LIKE_OF_TWO.get(op, "")
    names = dict.fromkeys(choice.name for choice in table)
    stages = () if like or len(hosts) == 1 else _stages(taken.name, op, nbytes, len(hosts), max(hosts))
    return Explanation(table, taken, {name: _MEANINGS[name] for name in names}, like, stages=stages)


def _stages(name: str, op: str, nbytes: int, hosts: int, each: int) -> tuple[Stage, ...]:
    """Return what is done where no algorithm of the core is like it; `each` is the number of ranks on a host.

    Memory is counted once for each time that a rank writes or reads data where all of its host meet.
    """
    records = Stage("all_gather", "direct", hosts, _RECORD_NBYTES * each * hosts)
    if name == "along":
        # All tell all others, or a root tells or is told.
        swap = {
            "broadcast": Stage("broadcast", "flat", hosts, nbytes),
            "all_gather": Stage("all_gather", "direct", hosts, nbytes),
            "gather": Stage("all_gather", "direct", hosts, nbytes),
            "scatter": Stage("broadcast", "flat", hosts, nbytes),
            "all_to_all": Stage("all_gather", "direct", hosts, nbytes * hosts * each),
            "barrier": records,
        }
        told = swap.get(op, Stage("all_gather", "direct", hosts, nbytes * hosts))
        reduced = 0 if op in swap else nbytes * (hosts - 1 + each - 1)
        return told, Stage("", "", 1, reduced)
    if name != "hosts":
        return ()
    if op in ("gather", "scatter", "all_to_all"):
        direct = Stage(op, "direct" if op == "all_to_all" else "flat", (hosts - 1) * each + 1, nbytes)
        return records, Stage("", "", 1, nbytes // hosts), direct
    across = {"all_reduce": "two_shot", "reduce_scatter": "direct", "broadcast": "flat"}
    algorithm = across.get(op) or derived_algorithm(op, nbytes if op == "reduce" else nbytes // each, hosts)
    here = {"all_reduce": 3 * nbytes, "reduce_scatter": 2 * nbytes, "reduce": 2 * nbytes}.get(op, nbytes)
    between = [Stage(op, algorithm, hosts, nbytes)]
    if op == "broadcast" and 2 < hosts <= _FEW_HOSTS:  # each host has a share, of which it tells the others
        between = [Stage("scatter", "flat", hosts, nbytes), Stage("all_gather", "direct", hosts, nbytes)]
    return records, Stage("", "", 1, here), *between


def _within(choice: Choice, most: int) -> Choice:
    bound = choice.max_nbytes
    return choice._replace(max_nbytes=min(most, bound)) if choice.name == "along" and bound else choice


def _on_one_host(op: str, size: int) -> tuple[Choice, ...]:
    """Return the table at the board, as `rankwise_gloo_tcp.board.prepared` goes by it."""
    from rankwise_gloo_tcp.board.board import fetch_from_nbytes
    from rankwise_gloo_tcp.board.reducing import ONE_SHOT_NBYTES

    one_shot = Choice("one_shot", ONE_SHOT_NBYTES // (size - 1))
    if op in ("all_reduce", "reduce"):
        return (one_shot, Choice("two_shot"))
    if op == "reduce_scatter":
        return (Choice("combine"),)
    parts = 1 if op == "broadcast" else size
    at_once, compiled = size - 1 if op == "broadcast" else 0, native.module() is not None
    part_nbytes = fetch_from_nbytes(True, at_once, compiled)
    return (Choice("board", part_nbytes * parts - 1), Choice("fetch"))
