"""What to launch, where, and what becomes of the output."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType

from rankwise.errors import DistError
from rankwise_launch.processes import MOST_PROCESSES, cores, too_many

#: Bits of a `Streams` value, as torchrun numbers them.
STDOUT, STDERR = 1, 2
#: The number of a node that has not been told one.
UNNUMBERED = -1


@dataclass(frozen=True)
class Streams:
    """Which of stdout (1) and stderr (2) something applies to, for each local rank."""

    default: int = 0
    by_local_rank: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, local_rank: int) -> int:
        """Return the bits for a local rank."""
        return self.by_local_rank.get(local_rank, self.default)


@dataclass(frozen=True)
class LaunchConfig:
    """One node's part of a job.

    Attributes:
        command: The script, module or program, and its arguments.
        nproc_per_node: How many ranks run on this node.
        nnodes: Number of nodes; the largest, if they may come and go.
        node_rank: Which of them this is; `UNNUMBERED` if the launchers are to agree on that.
        master_addr: The address of node 0, which all nodes can reach.
        master_port: The port at which the ranks meet; None picks a free one, on a single node.
        meeting: The URL of a server where launchers and ranks meet, so that none of them is needed; "" for at node 0.
        max_restarts: How often all ranks are started again after a failure; if elastic, how often any one is.
        elastic: A rank that fails does not end the others, and is started again by itself.
        least_nodes: With how many nodes the job may begin and goes on; None for all.
        min_ranks: How many ranks of an elastic job must end well; None for those of as many nodes as it may begin with.
        log_dir: Where the log files go; None makes a temporary folder if there is anything to log.
        tee: Which streams are written to log files as well as to the console.
        redirects: Which streams are written to log files only.
        shown: Which local ranks the console shows; None for all.
        run_id: A name for the run; None makes one up.
        role: What `ROLE_NAME` says.
        module: The command's first word is a Python module, not a script.
        no_python: The command is executed as it is.
        preload: Modules that are imported once, in a process that the ranks are forked from.
        local_rank_argument: Give the script `--local_rank=N` as its first argument.
        grace_s: How long ranks may take to end after Ctrl-C or SIGTERM before they are killed.
        join_timeout_s: How long to wait for the launchers of the other nodes.
        last_call_s: How long to wait for more of them, once there are `min_nodes`.
    """

    command: tuple[str, ...]
    nproc_per_node: int = 1
    nnodes: int = 1
    node_rank: int = 0
    master_addr: str = "127.0.0.1"
    master_port: int | None = None
    meeting: str = ""
    max_restarts: int = 0
    elastic: bool = False
    least_nodes: int | None = None
    min_ranks: int | None = None
    log_dir: Path | None = None
    tee: Streams = field(default_factory=Streams)
    redirects: Streams = field(default_factory=Streams)
    shown: frozenset[int] | None = None
    run_id: str | None = None
    role: str = "default"
    module: bool = False
    no_python: bool = False
    preload: tuple[str, ...] = ()
    local_rank_argument: bool = False
    grace_s: float = 5.0
    join_timeout_s: float = 300.0
    last_call_s: float = 30.0

    def __post_init__(self) -> None:
        for broken, sentence in self._mistakes():
            if broken:
                raise LaunchError(ExitCode.USAGE, sentence)

    @property
    def min_nodes(self) -> int:
        """With how many nodes the job may begin."""
        return self.nnodes if self.least_nodes is None else self.least_nodes

    @property
    def serves(self) -> bool:
        """Whether this launcher serves the store in which launchers and ranks meet."""
        return self.node_rank == 0 and not self.meeting

    @property
    def is_flexible(self) -> bool:
        """Whether nodes may be lost, and come, as the job goes on without a signal to all."""
        return self.elastic or self.min_nodes < self.nnodes

    @property
    def master_port_of_nodes(self) -> int:
        """Where the launchers of several nodes meet: next to where the ranks do."""
        assert self.master_port is not None
        return self.master_port + 1

    def _may_be(self, number: int) -> bool:
        """Tell whether a node may have this number; one that comes late may have one beyond those of the lost ones."""
        if number == UNNUMBERED:
            return self.nnodes > 1
        return number >= 0 and (number < max(self.nnodes, 1) or self.is_flexible)

    def _mistakes(self) -> list[tuple[bool, str]]:
        port, several = self.master_port, self.nnodes > 1
        nodes = f"{self.min_nodes}:{self.nnodes}"
        least = 1 if self.min_ranks is None else self.min_ranks
        return [
            (not self.command, "give a script to run"),
            (self.nproc_per_node < 1, f"at least 1 process per node is needed, not {self.nproc_per_node}"),
            (self.nproc_per_node > MOST_PROCESSES, too_many("processes per node", self.nproc_per_node)),
            (self.nnodes < 1, f"at least 1 node is needed, not {self.nnodes}"),
            (self.nnodes > MOST_PROCESSES, too_many("nodes", self.nnodes)),
            (not self._may_be(self.node_rank), none_of_them(self.node_rank, self.nnodes)),
            (port is not None and not 0 < port < 65536, f"the master port must be 1 to 65535, not {port}"),
            (several and port is None and not self.meeting, "several nodes need --master-port, the same on each"),
            (
                bool(self.meeting) and not several,
                "--rdzv-endpoint with a URL is for several nodes, such as --nnodes 1:8",
            ),
            (several and port == 65535, "the master port must be below 65535: the launchers use the next one"),
            (
                bool(self.preload) and self.no_python,
                "--preload is for Python programs: a program of another kind (--no-python) starts by itself",
            ),
            (self.max_restarts < 0, f"--max-restarts cannot be {self.max_restarts}"),
            (
                not 1 <= self.min_nodes <= max(self.nnodes, 1),
                f"--nnodes {nodes}: the first number is the least, and at least 1",
            ),
            (least < 1, f"--min-ranks must be at least 1, not {least}"),
            (least > 1 and not self.elastic, "--min-ranks is for --elastic; otherwise a job needs all ranks"),
            (not several and least > self.nproc_per_node >= 1, few_ranks(least, self.nproc_per_node)),
        ]


def few_ranks(min_ranks: int, world_size: int) -> str:
    """Say that a job has fewer ranks than it needs."""
    return f"--min-ranks {min_ranks} is more than the job has, which is {world_size}"


def parse_streams(text: str) -> Streams:
    """Parse torchrun's notation: a number from 0 to 3 for all ranks, or `0:1,1:2` by local rank.

    Raises:
        ValueError: It is something else.
    """
    try:
        if ":" not in text:
            return Streams(_bits(text))
        pairs = [part.split(":") for part in text.split(",")]
        return Streams(0, MappingProxyType({int(rank): _bits(bits) for rank, bits in pairs}))
    except ValueError:
        raise ValueError(f"{text!r} must be 0 to 3 (1 stdout, 2 stderr, 3 both), or such as 0:1,1:2") from None


def count_processes(text: str) -> int:
    """Return how many processes `-n TEXT` means: a number, "cpu", "gpu", or "auto" (GPUs if any, else cores).

    Raises:
        ValueError: It is neither, or there is no GPU to count.
    """
    if text == "cpu":
        return cores()
    if text in ("auto", "gpu"):
        gpus = _gpus()
        if text == "gpu" and not gpus:
            raise ValueError("this machine shows no NVIDIA GPU")
        return gpus or cores()
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} must be a number, or auto, cpu or gpu") from None


def _bits(text: str) -> int:
    bits = int(text)
    if not 0 <= bits <= STDOUT | STDERR:
        raise ValueError(text)
    return bits


def _gpus() -> int:
    """Count what the driver shows, without loading it."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        present = len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        return 0
    if visible is None:
        return present
    return min(present, len([device for device in visible.split(",") if device.strip() not in ("", "-1")]))


# The exit codes of the launcher's own failures, which it never confuses with those of the program it runs


class ExitCode(IntEnum):
    """Why the launcher itself ended a job, or did not begin one."""

    #: A node has come to an elastic job that needs no more: no failure.
    UNNEEDED = 0
    USAGE = 2
    CANNOT_START = 71
    SECRET = 77
    PORT_IN_USE = 98
    ENDED_EARLY = 104
    NODE_MISSING = 110
    NODE_LOST = 111
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127


DESCRIPTIONS = {
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.CANNOT_START: "the system refused to start a process",
    ExitCode.SECRET: "several nodes, and no usable job secret",
    ExitCode.PORT_IN_USE: "the master port is taken, or cannot be served on the master address",
    ExitCode.ENDED_EARLY: "a rank ended with exit code 0 while another still needed it",
    ExitCode.NODE_MISSING: "a node did not join in time",
    ExitCode.NODE_LOST: "the launcher of another node is gone",
    ExitCode.NOT_EXECUTABLE: "the program is there but cannot be executed",
    ExitCode.NOT_FOUND: "there is no such script, module or program",
}


class LaunchError(DistError):
    """The launcher could not do what it was asked to.

    Attributes:
        exit_code: What the launcher's process ends with.
    """

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(exit_code, message)
        self.exit_code = exit_code
        self.message = message

    def __str__(self) -> str:
        return self.message


def none_of_them(number: int, nodes: int) -> str:
    """Say that there is no such node."""
    return f"node rank {number} is not one of 0 to {nodes - 1}, as --nnodes is {nodes}"
