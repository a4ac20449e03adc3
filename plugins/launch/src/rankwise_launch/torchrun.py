"""Options of torchrun's: those that mean something here too, and an answer for each that does not."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rankwise_launch.exit_codes import ExitCode, LaunchError

__all__ = ["add_torchrun_options", "apply_rendezvous", "count_nodes"]

_FIXED = "a job here has as many nodes from its beginning to its end as it is told; give one number"
_OWN_LOGS = "the format of logs is fixed; see --log-dir, --tee and --redirects"
_FILTERS = "lines cannot be chosen by their content; pipe the output through grep"

#: What torchrun does and we do not, or otherwise.
_ANSWERS = {
    "--rdzv-conf": "say --join-timeout for how long to wait for the other nodes; there is nothing else to configure",
    "--local-addr": "set RANKWISE_SOCKET_IFNAME to the interface by which the others reach this node",
    "--logs-specs": _OWN_LOGS,
    "--event-log-handler": _OWN_LOGS,
    "--duplicate-stdout-filters": _FILTERS,
    "--duplicate-stderr-filters": _FILTERS,
    "--numa-binding": "start each rank with numactl: rankwise run --no-python ... numactl ...",
    "--signals-to-handle": "SIGINT, SIGTERM and SIGHUP end the job; others are for the ranks alone",
    "--use-agent-store": "rank 0 serves the store itself",
}
#: What makes no difference here, and why.
_WITHOUT_EFFECT = {
    "--monitor-interval": "the end of a rank is noticed at once",
    "--start-method": "each rank is a new process",
    "--virtual-local-rank": "LOCAL_RANK is set, and devices are chosen by the program",
}


def add_torchrun_options(parser: argparse.ArgumentParser) -> None:
    """Add the options, after those of our own."""
    spelling = "all options may be spelled with underscores too"
    group = parser.add_argument_group("for those who come from torchrun", spelling)
    both = "static or c10d: with both the launchers meet at node 0"
    for name in ("--rdzv-backend", "--rdzv_backend"):
        _add(group, name, choices=("static", "c10d"), metavar="NAME", help=both, hidden="_" in name)
    for name in ("--rdzv-endpoint", "--rdzv_endpoint"):
        _add(group, name, metavar="HOST:PORT", help="--master-addr and --master-port in one", hidden="_" in name)
    for name, answer in _ANSWERS.items():
        for spelling in _spellings(name):
            group.add_argument(spelling, action=_Answer, nargs="?", const=answer, dest="_", help=argparse.SUPPRESS)
    for name in _WITHOUT_EFFECT:
        flag: dict[str, Any] = {"action": "store_true"} if name == "--virtual-local-rank" else {}
        for spelling in _spellings(name):
            group.add_argument(spelling, dest="_", help=argparse.SUPPRESS, **flag)


def apply_rendezvous(options: argparse.Namespace) -> None:
    """Take the address and the port of node 0 from --rdzv-endpoint, where they are given there.

    Raises:
        LaunchError: They are given twice, or make no sense.
    """
    endpoint = options.rdzv_endpoint
    if not endpoint:
        return
    if options.master_addr is not None or options.master_port is not None:
        text = "--rdzv-endpoint says what --master-addr and --master-port say; give it or them"
        raise LaunchError(ExitCode.USAGE, text)
    host, colon, port = endpoint.rpartition(":")
    if not colon or endpoint.endswith("]"):
        host, port = endpoint, ""
    if port and not port.isdigit():
        raise LaunchError(ExitCode.USAGE, f"--rdzv-endpoint {endpoint}: the port must be a number")
    options.master_addr = host.strip("[]")
    # torchrun's own examples say localhost:0 for any that is free, which a single node takes by itself.
    options.master_port = int(port or 0) or None


def count_nodes(text: str) -> int:
    """Return how many nodes `--nnodes TEXT` means, which torchrun writes as MIN:MAX too.

    Raises:
        ArgumentTypeError: It is no number, or leaves the number open.
    """
    low, _, high = text.partition(":")
    try:
        least, most = int(low), int(high or low)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of nodes") from None
    if least != most:
        raise argparse.ArgumentTypeError(f"{text!r}: {_FIXED}, such as --nnodes {most}")
    return least


class _Answer(argparse.Action):
    """Ends the command line with what to do instead of an option."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        parser.error(f"{option_string} is torchrun's, and not known here: {self.const}")


def _spellings(name: str) -> list[str]:
    return list(dict.fromkeys([name, f"--{name[2:].replace('-', '_')}"]))


def _add(group: argparse._ArgumentGroup, name: str, help: str, hidden: bool, **settings: Any) -> None:
    group.add_argument(name, help=argparse.SUPPRESS if hidden else help, **settings)
