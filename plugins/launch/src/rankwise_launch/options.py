"""The command lines of `rankwise run` and of the older `python -m rankwise_launch`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankwise_launch.config import (
    DESCRIPTIONS,
    UNNUMBERED,
    ExitCode,
    LaunchConfig,
    LaunchError,
    Streams,
    count_processes,
    none_of_them,
    parse_streams,
)
from rankwise_network.launcher_env import node_0

#: What MASTER_PORT is where nobody has to say it.
_TORCHRUNS_PORT = 29500
_NODE_RANKS = ("PET_NODE_RANK", "SLURM_NODEID", "LWS_WORKER_INDEX", "JOB_COMPLETION_INDEX")

EPILOG = """\
examples:
  rankwise run -n 4 train.py --lr 0.1
  rankwise run -n auto --log-dir logs --redirects 3 --tee 0:3 train.py
  rankwise run -n 4 --elastic --max-restarts 3 --min-ranks 2 train.py
  RANKWISE_SECRET_FILE=job.secret rankwise run -n 8 --nnodes 2 --node-rank 0 \\
      --master-addr 10.0.0.1 --master-port 29500 train.py

The exit code is that of the rank that failed first (128 plus the signal's number if a signal ended it), 130 after
Ctrl-C, 143 after SIGTERM. The launcher's own exit codes:
""" + "\n".join(f"  {int(code):3}  {text}" for code, text in DESCRIPTIONS.items())


def add_options(parser: argparse.ArgumentParser, older: bool = False) -> None:
    """Add the options; `older` gives them the default and the extras of `torch.distributed.launch`."""
    _add_where(parser.add_argument_group("where the ranks run"))
    _add_ends(parser.add_argument_group("how it ends"))
    _add_output(parser.add_argument_group("output", "each line on the console begins with its rank"))
    _add_what(parser.add_argument_group("what is run"), older)
    add_torchrun_options(parser)


def _add_where(group: argparse._ArgumentGroup) -> None:
    _both(
        group,
        "--nproc-per-node",
        "-n",
        type=_processes,
        default=os.environ.get("PET_NPROC_PER_NODE", "1"),
        metavar="N",
        help="ranks on this node: a number, cpu (cores), gpu, or auto (GPUs if any, else cores); "
        "defaults to $PET_NPROC_PER_NODE, else 1",
    )
    nodes = "number of nodes, or MIN:MAX for nodes that come and go; defaults to $PET_NNODES, else 1"
    _both(group, "--nnodes", type=count_nodes, default=os.environ.get("PET_NNODES", "1"), metavar="N", help=nodes)
    which = f"this node's number; defaults to 0 on a single node, otherwise to one of ${', $'.join(_NODE_RANKS)}, "
    which += "else the launchers agree: node 0 is the one at --master-addr"
    _both(group, "--node-rank", type=int, metavar="R", help=which)
    told = "defaults to {} on a single node, otherwise to $PET_{}, else ${}, else "
    address = "the address of node 0; " + told.format("127.0.0.1", "MASTER_ADDR", "MASTER_ADDR")
    _both(group, "--master-addr", metavar="ADDR", help=address + "the address from Slurm or the LeaderWorkerSet")
    port = "where the ranks meet; " + told.format("a free port", "MASTER_PORT", "MASTER_PORT")
    port += "a port derived from the job's name, if the cluster provides it. On several nodes the launchers also use "
    port += "the next port"
    _both(group, "--master-port", type=int, metavar="PORT", help=port)
    group.add_argument("--standalone", action="store_true", help="use one node and a free port, despite other options")
    wait = "seconds to wait for the launchers of the other nodes; default 300"
    _both(group, "--join-timeout", type=_seconds, default=300.0, metavar="S", help=wait)
    call = "with --nnodes MIN:MAX, seconds to wait for more nodes once there are MIN; default 30"
    _both(group, "--last-call", type=_seconds, default=30.0, metavar="S", help=call)


def _add_ends(group: argparse._ArgumentGroup) -> None:
    again = "restart all ranks up to N times after a failure, with --elastic the failed rank alone; default 0"
    _both(group, "--max-restarts", type=int, default=0, metavar="N", help=again)
    elastic = "let the other ranks go on when one fails, and restart that one as often as --max-restarts allows"
    group.add_argument("--elastic", action="store_true", help=elastic)
    enough = (
        "with --elastic, end the job once fewer than M ranks are left; defaults to 1, with --nnodes MIN:MAX to the "
    )
    enough += "ranks of MIN nodes"
    _both(group, "--min-ranks", type=int, metavar="M", help=enough)
    grace = "seconds that ranks have to end after Ctrl-C or SIGTERM; default 5 (always 0.5 after a failure)"
    group.add_argument("--grace", type=_seconds, default=5.0, metavar="S", help=grace)


def _add_output(group: argparse._ArgumentGroup) -> None:
    _both(
        group,
        "--log-dir",
        type=Path,
        metavar="DIR",
        help="write DIR/RUN_ID/attempt_A/LOCAL_RANK/stdout.log and stderr.log (DIR/RUN_ID/node_N/... with several "
        "nodes; RUN_ID.2 if RUN_ID exists); without --tee and --redirects, both streams go there and to the console",
    )
    tee = "streams for log files and console: 1 stdout, 2 stderr, 3 both, or by rank as in 0:3,1:2"
    group.add_argument("-t", "--tee", type=_streams, default=Streams(), metavar="WHAT", help=tee)
    redirects = "streams for log files only, in the same notation"
    group.add_argument("-r", "--redirects", type=_streams, default=Streams(), metavar="WHAT", help=redirects)
    shown = "show only these local ranks on the console, such as 0,1; default all"
    _both(group, "--local-ranks-filter", type=_ranks, metavar="RANKS", help=shown)
    _both(group, "--run-id", "--rdzv-id", metavar="NAME", help="the name of the run; random by default")
    group.add_argument("--role", default="default", metavar="NAME", help="the value of ROLE_NAME for the ranks")


def _add_what(group: argparse._ArgumentGroup, older: bool) -> None:
    group.add_argument("-m", "--module", action="store_true", help="SCRIPT is a Python module")
    preload = "import these modules, such as numpy,rankwise, once in a process from which the ranks are forked"
    group.add_argument("--preload", type=_modules, default=(), metavar="MODULES", help=preload)
    _both(group, "--no-python", action="store_true", help="SCRIPT is a program of any kind, executed as it is")
    if older:
        plain = "do not give the script --local_rank=N as its first argument; it reads LOCAL_RANK instead"
        _both(group, "--use-env", action="store_true", help=plain)
    group.add_argument("script", metavar="SCRIPT", help="the Python script")
    group.add_argument("args", nargs=argparse.REMAINDER, metavar="...", help="its arguments")


def to_config(options: argparse.Namespace) -> LaunchConfig:
    """Make a configuration of parsed options.

    Raises:
        LaunchError: They make no sense together.
    """
    apply_rendezvous(options)
    least, options.nnodes = options.nnodes
    if options.standalone:
        least, options.nnodes, options.node_rank, options.master_addr, options.master_port = 1, 1, 0, None, None
    logs_everything = options.log_dir is not None and options.tee == Streams() and options.redirects == Streams()
    if options.nnodes > 1 and not options.meeting:
        _fill_in_master(options)
    if options.nnodes > 1 and options.master_addr is None and not options.meeting:
        raise LaunchError(ExitCode.USAGE, "several nodes need --master-addr, the address of node 0")
    if options.module and options.no_python:
        raise LaunchError(ExitCode.USAGE, "-m and --no-python exclude each other")
    return LaunchConfig(
        command=(options.script, *options.args),
        nproc_per_node=options.nproc_per_node,
        nnodes=options.nnodes,
        least_nodes=least,
        node_rank=_node_rank(options, least),
        master_addr=options.master_addr or "127.0.0.1",
        master_port=options.master_port or (_TORCHRUNS_PORT if options.meeting else None),
        meeting=options.meeting,
        max_restarts=options.max_restarts,
        elastic=options.elastic,
        min_ranks=options.min_ranks,
        log_dir=options.log_dir,
        tee=Streams(3) if logs_everything else options.tee,
        redirects=options.redirects,
        shown=options.local_ranks_filter,
        run_id=options.run_id,
        role=options.role,
        module=options.module,
        no_python=options.no_python,
        preload=options.preload,
        local_rank_argument=not getattr(options, "use_env", True),
        grace_s=options.grace,
        join_timeout_s=options.join_timeout,
        last_call_s=options.last_call,
    )


def _fill_in_master(options: argparse.Namespace) -> None:
    """Take from the cluster's variables what the command line leaves open: where node 0 is."""
    try:
        address, port = node_0()
    except ValueError as error:
        address, port = "", 0
        if options.master_addr is None:
            raise LaunchError(ExitCode.USAGE, str(error).removeprefix("env://: ")) from None
    options.master_addr = options.master_addr or address or None
    options.master_port = options.master_port or port or None


def _node_rank(options: argparse.Namespace, least: int) -> int:
    if options.node_rank is not None and options.node_rank >= options.nnodes > 0:
        raise LaunchError(ExitCode.USAGE, none_of_them(options.node_rank, options.nnodes))
    if options.node_rank is not None or options.nnodes <= 1:
        return options.node_rank or 0
    if least < options.nnodes:  # another job step or controller, which numbers from 0 too, may start more of them
        return int(os.environ.get("PET_NODE_RANK") or UNNUMBERED)
    if os.environ.get("SLURM_STEP_NUM_TASKS") == str(options.nnodes) and os.environ.get("SLURM_PROCID", "").isdigit():
        # A launcher on each node, in the order of srun's tasks, which need not be that of the list of nodes.
        return int(os.environ["SLURM_PROCID"])
    for name in _NODE_RANKS:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return UNNUMBERED


def _both(group: argparse._ArgumentGroup, *names: str, **settings: object) -> None:
    """Add an option under its names, and as torchrun does also with underscores."""
    spellings = dict.fromkeys([*names, *(f"--{name[2:].replace('-', '_')}" for name in names if name[:2] == "--")])
    group.add_argument(*spellings, **settings)  # type: ignore[arg-type]


def _processes(text: str) -> int:
    try:
        return count_processes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _streams(text: str) -> Streams:
    try:
        return parse_streams(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _ranks(text: str) -> frozenset[int]:
    numbers = [part.strip() for part in text.split(",")]
    if not all(number.isdigit() for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} must be local ranks, such as 0,1")
    return frozenset(map(int, numbers))


def _modules(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(part.isidentifier() for name in names for part in name.split(".")):
        raise argparse.ArgumentTypeError(f"{text!r} must be modules, such as numpy,rankwise")
    return names


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


# ------------------ options of torchrun's: those that mean something here too, and an answer for each that does not

_OWN_LOGS = "the format of logs is fixed; see --log-dir, --tee and --redirects"
_FILTERS = "lines cannot be chosen by their content; pipe the output through grep"

#: What torchrun does and we do not, or otherwise.
_ANSWERS = {
    "--rdzv-conf": "say --join-timeout for how long to wait for the other nodes, and --last-call for those beyond MIN",
    "--local-addr": "set RANKWISE_SOCKET_IFNAME to the interface by which the others reach this node",
    "--logs-specs": _OWN_LOGS,
    "--event-log-handler": _OWN_LOGS,
    "--duplicate-stdout-filters": _FILTERS,
    "--duplicate-stderr-filters": _FILTERS,
    "--numa-binding": "start each rank with numactl: rankwise run --no-python ... numactl ...",
    "--signals-to-handle": "SIGINT, SIGTERM and SIGHUP end the job; SIGUSR1, SIGUSR2 and the like go to the ranks",
    "--use-agent-store": "at the master's port rank 0 serves a store; that of rankwise's groups the launcher serves",
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
    group = parser.add_argument_group("options of torchrun", spelling)
    both = "static or c10d: with both the launchers meet at node 0"
    for name in ("--rdzv-backend", "--rdzv_backend"):
        _add(group, name, choices=("static", "c10d"), metavar="NAME", help=both, hidden="_" in name)
    endpoint = "--master-addr and --master-port in one; or the URL of a Redis or an etcd, so that no node is needed"
    for name in ("--rdzv-endpoint", "--rdzv_endpoint"):
        _add(group, name, metavar="HOST:PORT|URL", help=endpoint, hidden="_" in name)
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
    endpoint, options.meeting = options.rdzv_endpoint, ""
    if endpoint is None and options.master_addr is None and options.master_port is None:
        endpoint = os.environ.get("PET_RDZV_ENDPOINT")
    if not endpoint:
        return
    if "://" in endpoint:
        options.meeting = _server(endpoint)
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


def _server(url: str) -> str:
    """Return the URL of a server in which launchers and ranks may meet.

    Raises:
        LaunchError: It is none.
    """
    try:
        from rankwise_stores.serving import is_served, within, without_password

        within(url, "launchers")  # which looks at all of it
        if is_served(url):
            return url
    except ImportError:
        raise LaunchError(ExitCode.USAGE, "--rdzv-endpoint with a URL needs rankwise-stores") from None
    except ValueError as error:
        raise LaunchError(ExitCode.USAGE, str(error)) from None
    shown = without_password(url)
    raise LaunchError(ExitCode.USAGE, f"--rdzv-endpoint {shown}: launchers meet at HOST:PORT, redis:// or etcd://")


def count_nodes(text: str) -> tuple[int, int]:
    """Return how many nodes `--nnodes TEXT` means, as MIN and MAX: a number is both.

    Raises:
        ArgumentTypeError: It is neither a number nor MIN:MAX.
    """
    low, _, high = text.partition(":")
    try:
        return int(low), int(high or low)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of nodes, nor MIN:MAX") from None


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
