"""`rankwise explain`: which algorithm runs for a size and a number of ranks, and why."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from rankwise.launching import (
    CHOICES,
    AlgorithmChoice,
    Explanation,
    fitting_algorithm,
    get_default_backend_for_device,
    is_backend_available,
    registry,
)
from rankwise_launch.toolbox import CommandError, columns, counted, format_nbytes, format_seconds, instead, parse_nbytes
from rankwise_tools.explaining.algorithms import ALGORITHMS
from rankwise_tools.explaining.costs import costs, reckoned
from rankwise_tools.explaining.network import Parameters, predicted
from rankwise_tools.explaining.simulator import simulate

DESCRIPTION = """\
Show which algorithm a backend uses for a collective, and which table chose it. For algorithms that consist of messages,
also show what each rank does, and how long they take on a simulated network: a message takes ALPHA to arrive, each byte
BETA on the links, and GAMMA to be combined."""

EXAMPLES = """\
examples:
  rankwise explain all_reduce --bytes 64MiB --ranks 64
  rankwise explain all_reduce --bytes 4KiB --ranks 16 --hosts 16
  rankwise explain broadcast --backend derived --ranks 16 --alpha-us 1 --gbit-per-s 80
  rankwise explain all_reduce --ranks 1024 --hosts 128 --network network.json"""

#: Rings and all-pairs algorithms have as many messages as there are pairs of ranks; more takes minutes. Trees have one
#: for each rank, or for each rank and level or segment: of more ranks than these it is not said how long they take.
_MOST_RANKS = 256
_TREES = {"binomial": 1 << 20, "double_trees": 4096, "scatter_bruck": 4096}
#: The network that is assumed inside a host, and between hosts.
_NEAR, _FAR = Parameters(5.0, 40.0, 8.0), Parameters(30.0, 10.0, 8.0)
#: What runs where a backend has no algorithm of its own.
_DERIVED = "derived"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("op", metavar="OP", help=", ".join(CHOICES))
    parser.add_argument(
        "--bytes", default="1MiB", metavar="N", help="size of the array, all parts together; default 1MiB"
    )
    parser.add_argument("--ranks", type=int, default=4, metavar="P", help="number of ranks; default 4")
    parser.add_argument("--hosts", type=int, default=1, metavar="H", help="number of hosts; default 1")
    parser.add_argument("--backend", metavar="NAME", help="a backend, or derived; default gloo")
    network = parser.add_argument_group("the simulated network", "the defaults depend on --hosts")
    network.add_argument("--alpha-us", type=float, metavar="US", help="latency; default 5 on one host, else 30")
    network.add_argument(
        "--gbit-per-s", type=float, metavar="G", help="link bandwidth; default 40 on one host, else 10"
    )
    network.add_argument("--combine-gb-per-s", type=float, metavar="G", help="rate of adding up; default 8")
    network.add_argument("--message-us", type=float, metavar="US", help="cost of each message at both ends; default 0")
    network.add_argument(
        "--network", type=Path, metavar="FILE", help="use parameters that `python -m rankwise_tools.fit` has saved"
    )


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    op, size, nbytes = options.op, options.ranks, _nbytes(options.bytes)
    if op not in CHOICES:
        raise CommandError(f"there is no collective {op!r}{instead(op, CHOICES)}", 2)
    if size < 1:
        raise CommandError("at least 1 rank is needed", 2)
    network = _network(options)
    if not 1 <= options.hosts <= size:
        raise CommandError(f"{counted(size, 'rank')} cannot be on {counted(options.hosts, 'host')}", 2)
    backend = options.backend or _default()
    each, more = divmod(size, options.hosts)
    answer = _answer(backend, op, nbytes, [each + (host < more) for host in range(options.hosts)])
    of = "" if op == "barrier" else f" of {format_nbytes(nbytes)}"
    where = f"{counted(size, 'rank')}, {counted(options.hosts, 'host')}"
    print(f"{op}{of} on {where}, by {backend}{answer.how}: {answer.taken.name}\n")
    print("The table that all ranks go by; the first line that fits counts:")
    print("\n".join(f"  {'->' if choice is answer.taken else '  '} {_line(choice)}" for choice in answer.table))
    print("".join(f"\n  {name}: {meaning}" for name, meaning in answer.meanings.items()))
    if answer.like or options.hosts > 1:
        _simulate(network, op, size, nbytes, answer.like)
        if answer.stages and options.hosts <= _MOST_RANKS:
            time_s = predicted(op, nbytes, size, answer, network)
            print(f"\n{answer.taken.name}, as it is done here: {format_seconds(time_s or 0.0)}")
    return 0


def _default() -> str:
    """Return what serves arrays in the host's memory here."""
    name = get_default_backend_for_device("cpu")
    return name if is_backend_available(name) else _DERIVED


def _answer(backend: str, op: str, nbytes: int, hosts: list[int]) -> Explanation:
    """Ask a backend, or the core's table of derived collectives."""
    if backend != _DERIVED:
        explain = registry.get(backend).explain
        if explain is None:
            raise CommandError(f"the backend {backend!r} does not tell its algorithms; --backend {_DERIVED} does", 2)
        return explain(op, nbytes, hosts)
    taken = fitting_algorithm(op, nbytes, sum(hosts))
    return Explanation(CHOICES[op], taken, {}, taken.name)


def _network(options: argparse.Namespace) -> Parameters:
    told = {name: value for name in Parameters._fields if (value := getattr(options, name)) is not None}
    for name, value in told.items():
        least = name in ("alpha_us", "message_us")  # of which there may be nothing
        if not (0 <= value < math.inf if least else 0 < value < math.inf):
            option = f"--{name.replace('_', '-')}"
            raise CommandError(f"{option} must be a number {'of 0 or more' if least else 'above 0'}, not {value:g}", 2)
    try:
        known = (_NEAR if options.hosts == 1 else _FAR) if options.network is None else Parameters.load(options.network)
    except ValueError as error:
        raise CommandError(str(error), 2) from error
    return known._replace(**told)


def _simulate(network: Parameters, op: str, size: int, nbytes: int, like: str) -> None:
    seconds = network.seconds
    parts = [nbytes // size + (rank < nbytes % size) for rank in range(size)]
    few = size <= _MOST_RANKS
    rows = [["algorithm", "rounds", "bytes sent by a rank, at most", "simulated" if few else "predicted"]]
    for name, function in ALGORITHMS[op].items():
        each = costs(op, name, size, parts) if few else reckoned(op, name, parts, seconds)
        if few or size <= _TREES.get(name, 0):
            told = format_seconds(simulate(op, function, parts, seconds))
        else:
            told = "" if name in _TREES else format_seconds(max(cost.seconds for cost in each))
        most = format_nbytes(max(cost.nbytes for cost in each))
        mark = "-> " if name == like else "   "
        rows.append([mark + name, str(max(cost.rounds for cost in each)), most, told])
    how = "Simulated" if few else "Predicted"
    print(f"\n{how} with {network.alpha_us:.3g} us and {network.gbit_per_s:.3g} Gbit/s for each rank:")
    print(columns(rows, right=(1, 2, 3)))


def _nbytes(text: str) -> int:
    try:
        return parse_nbytes(text)
    except ValueError as error:
        raise CommandError(str(error), 2) from error


def _line(choice: AlgorithmChoice) -> str:
    bounds = [f"up to {format_nbytes(choice.max_nbytes)}"] if choice.max_nbytes is not None else []
    bounds += [f"up to {choice.max_ranks} ranks"] if choice.max_ranks is not None else []
    if choice.max_share_nbytes is not None:
        bounds.append(f"up to {format_nbytes(choice.max_share_nbytes)} a rank")
    return f"{choice.name:20} {' and '.join(bounds) or 'otherwise'}"
