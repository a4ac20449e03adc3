"""`rankwise explain`: which algorithm runs for a size and a number of ranks, and why."""

from __future__ import annotations

import argparse
import math
from typing import NamedTuple

from rankwise.cli.commands import CommandError
from rankwise.cli.parser import near
from rankwise.cli.text import columns, format_nbytes, format_seconds, parse_nbytes
from rankwise.collective.algorithms.simulator import simulate
from rankwise.collective.algorithms.table import ALGORITHMS, CHOICES, MIXED, NETWORK, Choice, choose, costs, fitting

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = """\
Say which algorithm a derived collective takes, what each rank does in it, and how long it and its rivals take on a
simulated network: a message needs ALPHA to arrive, each byte BETA on the links, and GAMMA to be combined."""

EXAMPLES = """\
examples:
  rankwise explain all_reduce --bytes 64MiB --ranks 64
  rankwise explain broadcast --bytes 4KiB --ranks 16 --alpha-us 1 --gbit-per-s 80"""

#: Rings and all-pairs algorithms have as many messages as there are pairs of ranks; more takes minutes.
_MOST_RANKS = 256
_MEANING = {
    True: "It is that of collectives derived from send and receive; a backend's own may have another.",
    False: "It is that of the backend gloo between hosts, where",
}
_NAMES = {
    "along": "along: the data goes with the comparison of the calls",
    "exchange": "exchange: two ranks send each other everything, in segments that are added up as they come",
    "streamed": "streamed: each rank reduces its share, in segments, and sends it round while others come",
    "direct": "direct: everyone sends to everyone at once",
    "hosts": "hosts: shared memory inside each host, its ranks side by side between hosts",
    "derived": "derived: the collective is derived from send and receive, by a table of its own (--hosts 1)",
}
#: Which of the simulated algorithms sends the same messages.
_LIKE = {"exchange": "recursive_doubling", "streamed": "two_shot"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("op", metavar="OP", help=", ".join(CHOICES))
    parser.add_argument("--bytes", default="1MiB", metavar="N", help="the array's size, of all parts together; 1MiB")
    parser.add_argument("--ranks", type=int, default=4, metavar="P", help="number of ranks; default 4")
    parser.add_argument("--hosts", type=int, default=1, metavar="H", help="hosts that they are on; default 1")
    network = parser.add_argument_group("the simulated network", "the defaults depend on --hosts")
    network.add_argument("--alpha-us", type=float, metavar="US", help="latency: 5 on one host, else 30")
    network.add_argument("--gbit-per-s", type=float, metavar="G", help="of each link: 40 on one host, else 10")
    network.add_argument("--combine-gb-per-s", type=float, default=8.0, metavar="G", help="adding up; default 8")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    op, size, nbytes = options.op, options.ranks, _nbytes(options.bytes)
    if op not in CHOICES:
        raise CommandError(f"there is no collective {op!r}{near(op, CHOICES)}; there are {', '.join(CHOICES)}", 2)
    if size < 1:
        raise CommandError("at least 1 rank is needed", 2)
    network = _network(options)
    if not 1 <= options.hosts <= size:
        raise CommandError(f"{size} rank(s) cannot be on {options.hosts} host(s)", 2)
    table = CHOICES if options.hosts == 1 else NETWORK if options.hosts == size else MIXED
    taken = fitting(op, nbytes, size, table)
    chosen = choose(op, nbytes, size) if taken.name in ("derived", "direct") else _LIKE.get(taken.name, taken.name)
    of = "" if op == "barrier" else f" of {format_nbytes(nbytes)}"
    print(f"{_answers_for(options.hosts, size)}\n")
    print(f"{op}{of} on {size} rank(s), {options.hosts} host(s): {taken.name}\n")
    print("The table that all ranks go by; the first line that fits counts:")
    print("\n".join(f"  {'->' if choice is taken else '  '} {_line(choice)}" for choice in table[op]))
    print("\n".join([f"\n{_MEANING[table is CHOICES]}", *(f"  {_NAMES[name]}" for name in _named(table[op]))]))
    if size > _MOST_RANKS:
        print(f"Not simulated: more than {_MOST_RANKS} ranks take too long here.")
    else:
        _simulate(network, op, size, nbytes, chosen)
    return 0


def _answers_for(hosts: int, size: int) -> str:
    """Say what the answer is about, and what runs otherwise."""
    if hosts == 1:
        return (
            "For collectives that a backend derives from send and receive. gloo on one host does not: its ranks meet\n"
            "in shared memory, compiled or not; RANKWISE_DEBUG=info tells what a job has chosen."
        )
    inside = "one rank on each host" if hosts == size else "the ranks of each host in shared memory first"
    return f"For gloo between hosts, {inside}; compiled parts change how fast it is, not which algorithm runs."


class _Network(NamedTuple):
    alpha_us: float
    gbit_per_s: float
    combine_gb_per_s: float


def _network(options: argparse.Namespace) -> _Network:
    local = options.hosts == 1
    alpha_us = options.alpha_us if options.alpha_us is not None else 5.0 if local else 30.0
    gbit = options.gbit_per_s if options.gbit_per_s is not None else 40.0 if local else 10.0
    if not 0 <= alpha_us < math.inf:
        raise CommandError(f"--alpha-us must be a number of 0 or more, not {alpha_us:g}", 2)
    for name, value in (("--gbit-per-s", gbit), ("--combine-gb-per-s", options.combine_gb_per_s)):
        if not 0 < value < math.inf:
            raise CommandError(f"{name} must be a number above 0, not {value:g}", 2)
    return _Network(alpha_us, gbit, options.combine_gb_per_s)


def _simulate(network: _Network, op: str, size: int, nbytes: int, chosen: str) -> None:
    alpha_s, gbit = network.alpha_us * 1e-6, network.gbit_per_s
    parts = [nbytes // size + (rank < nbytes % size) for rank in range(size)]
    rows = [["algorithm", "rounds", "bytes sent by a rank, at most", "simulated"]]
    for name, function in ALGORITHMS[op].items():
        each = costs(op, name, size, parts)
        time_s = simulate(op, function, parts, alpha_s, 8e-9 / gbit, 1e-9 / network.combine_gb_per_s)
        most = format_nbytes(max(cost.nbytes for cost in each))
        mark = "-> " if name == chosen else "   "
        rows.append([mark + name, str(max(cost.rounds for cost in each)), most, format_seconds(time_s)])
    print(f"\nSimulated with {alpha_s * 1e6:g} us and {gbit:g} Gbit/s for each rank:")
    print(columns(rows, right=(1, 2, 3)))


def _nbytes(text: str) -> int:
    try:
        return parse_nbytes(text)
    except ValueError as error:
        raise CommandError(str(error), 2) from error


def _named(choices: tuple[Choice, ...]) -> list[str]:
    return [name for name in dict.fromkeys(choice.name for choice in choices) if name in _NAMES]


def _line(choice: Choice) -> str:
    bounds = [f"up to {format_nbytes(choice.max_nbytes)}"] if choice.max_nbytes is not None else []
    bounds += [f"up to {choice.max_ranks} ranks"] if choice.max_ranks is not None else []
    return f"{choice.name:20} {' and '.join(bounds) or 'otherwise'}"
