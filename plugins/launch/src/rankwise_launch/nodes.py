"""How the launchers of several nodes find each other.

They meet in a store of their own, next to the port at which the ranks meet.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rankwise.errors import DistError, DistTimeoutError
from rankwise.launching import Deadline, __version__
from rankwise_launch.config import UNNUMBERED, ExitCode, LaunchConfig, LaunchError
from rankwise_launch.last_word import command
from rankwise_launch.presence import Loss, Presence, silence_s
from rankwise_launch.verdicts import Verdicts
from rankwise_launch.words import Voice, word_of

if TYPE_CHECKING:
    from rankwise_launch.elastic_verdicts import ElasticVerdicts
    from rankwise_stores import TCPStore

__all__ = ["Nodes", "Place", "difference", "two_launchers"]

#: How long the launcher that serves the store waits for the others to have read the last verdict.
_FAREWELL_S = 3.0
#: How long to look who has the port.
_WHO_S = 3.0
#: How often whoever waits looks whether the others are there; and how long node 0 may take to answer.
_LOOK_S, _ANSWER_S = 0.5, 5.0

_T = TypeVar("_T")


class Place(NamedTuple):
    """Where the ranks of a node are in the job.

    Attributes:
        first_rank: The rank of its local rank 0.
        world_size: How many ranks the job has.
        store_port: Where node 0 serves their store.
        nodes: How many nodes the job has.
    """

    first_rank: int
    world_size: int
    store_port: int
    nodes: int


class Nodes:
    """This launcher's connection to those of the other nodes."""

    def __init__(self, config: LaunchConfig) -> None:
        from rankwise_stores import TCPStore  # which a job of one node has no need of

        self._config = config
        self._silence_s = silence_s()
        self._presence: Presence | None = None
        self._hosts: list[str] = []
        self._where = f"{config.master_addr}:{config.master_port_of_nodes}"
        self._open = partial(TCPStore, config.master_addr, config.master_port_of_nodes, timeout=config.join_timeout_s)
        try:
            if config.node_rank == UNNUMBERED:
                self.store, number = self._take_a_number()
                self._config = replace(config, node_rank=number)
            else:
                self.store = self._open(is_master=config.node_rank == 0)
        except LaunchError:
            raise
        except DistTimeoutError as error:
            raise LaunchError(
                ExitCode.NODE_MISSING,
                f"the launcher of node 0 has not answered at {self._where} within {config.join_timeout_s:g} s; is it "
                f"running there, with the same job secret, and is the port open?",
            ) from error
        except (DistError, OSError, ValueError) as error:
            if config.node_rank == 0 and (owner := self._other_node_0()):
                raise LaunchError(ExitCode.USAGE, two_launchers(owner, 0)) from error
            code = ExitCode.PORT_IN_USE if config.node_rank == 0 else ExitCode.NODE_MISSING
            raise LaunchError(code, f"the launchers cannot meet at {self._where}: {error}") from error
        self.store.set_timeout(min(_ANSWER_S, self._silence_s))

    @property
    def config(self) -> LaunchConfig:
        """The configuration, in which this node has its number."""
        return self._config

    def _take_a_number(self) -> tuple[TCPStore, int]:
        """Open the store as node 0, if the address is this machine's and nobody is there; else take the next number."""
        with contextlib.suppress(DistError, OSError, ValueError):
            return self._open(is_master=True), 0
        store = self._open()
        number = store.add("numbers", 1)
        if number >= self._config.nnodes:
            store.close()
            raise LaunchError(
                ExitCode.USAGE,
                f"there are {self._config.nnodes} launchers already that meet at {self._where}, as --nnodes says",
            )
        return store, number

    def _other_node_0(self) -> str:
        """Return the host of the launcher that is node 0 already, "" if what has the port is something else."""
        from rankwise_stores import TCPStore

        try:
            with TCPStore(self._config.master_addr, self._config.master_port_of_nodes, timeout=_WHO_S) as store:
                return str(json.loads(store.get(self._keys(0)[0]))["host"])
        except (DistError, OSError, ValueError, LookupError, TypeError):
            return ""

    def __enter__(self) -> Nodes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A store that is not there any more needs no farewell, and nobody waits for one after Ctrl-C.
        with contextlib.suppress(DistError, OSError):
            if self._presence is not None:
                self._presence.leave()
                if self._config.node_rank == 0 and (error is None or isinstance(error, Exception)):
                    self._presence.await_others(_FAREWELL_S)
        self.store.close()

    def join(self, attempt: int, store_port: int) -> Place:
        """Wait for all launchers; return where the ranks of this node are. Node 0 says where it serves their store.

        Raises:
            LaunchError: Some did not come in time or are gone, have been started differently, or two claim to be the
                same node.
        """
        try:
            self._claim(attempt, store_port)
            code, text = self._assemble(attempt)
            if text:
                raise LaunchError(ExitCode(code), text)
            nodes = [json.loads(claim) for claim in self.store.multi_get(self._keys(attempt))]
        except LaunchError:
            raise
        except DistError as error:
            lost = self._lost() or Loss(0, f"its launcher is gone: {error}")
            raise LaunchError(ExitCode.NODE_LOST, self._tell(lost)) from error
        self._hosts = [str(node["host"]) for node in nodes]
        sizes = [int(node["nproc"]) for node in nodes]
        return Place(sum(sizes[: self._config.node_rank]), sum(sizes), int(nodes[0]["store"]), len(sizes))

    def _keys(self, attempt: int) -> list[str]:
        return [f"{attempt}/node/{node}" for node in range(self._config.nnodes)]

    def _claim(self, attempt: int, store_port: int) -> None:
        """Take this node's place, and say from then on that it is there.

        Raises:
            LaunchError: Another launcher has the place.
        """
        config, key = self._config, self._keys(attempt)[self._config.node_rank]
        mine = {**self._claim_of(), "store": store_port}
        if self._presence is None and config.node_rank != 0:
            Voice(self.store, config.node_rank).say()  # before others can see it here: it may be gone just then
        found = json.loads(self.store.compare_set(key, b"", json.dumps(mine).encode()))
        if found != mine:
            raise LaunchError(ExitCode.USAGE, two_launchers(str(found["host"]), config.node_rank))
        if self._presence is None:
            self._presence = Presence(self.store, config.node_rank, config.nnodes, self._silence_s)

    def _claim_of(self) -> dict[str, Any]:
        """Return what this launcher says of itself."""
        config = self._config
        mine = {"node": config.node_rank, "host": socket.gethostname(), "pid": os.getpid(), "terms": _terms(config)}
        return {**mine, "nproc": config.nproc_per_node}

    def _assemble(self, attempt: int) -> tuple[int, str]:
        """Wait until all nodes are there; return the exit code and the reason if they cannot begin.

        Node 0 decides for all, unless another node has found before that it was started differently.
        """
        keys, joined = self._keys(attempt), f"{attempt}/joined"
        if self._config.node_rank == 0:
            self._decide(joined, *self._gather(keys, joined))
        else:
            both = [keys[0], keys[self._config.node_rank]]
            claims = self._await(lambda wait_s: self.store.multi_get(both, wait_s), _ANSWER_S)
            if text := difference(claims or []):
                self._decide(joined, ExitCode.USAGE, text)
        patience_s = self._config.join_timeout_s + _FAREWELL_S
        answer = self._await(lambda wait_s: self.store.get(joined, wait_s), patience_s)
        if answer is None:
            return ExitCode.NODE_LOST, self._tell(self._lost() or Loss(0, "its launcher does not say who has joined"))
        code, text = json.loads(answer)
        return int(code), str(text)

    def _decide(self, joined: str, code: int, text: str) -> None:
        self.store.compare_set(joined, b"", json.dumps([int(code), text]).encode())

    def _gather(self, keys: list[str], joined: str) -> tuple[int, str]:
        """On node 0, wait for all claims; return the exit code and the reason if they cannot begin."""

        def claims(wait_s: float) -> list[bytes]:
            try:
                return self.store.multi_get(keys, wait_s)
            except DistTimeoutError:
                if self.store.check([joined]):
                    return []  # another node has decided
                raise

        found = self._await(claims, self._config.join_timeout_s)
        if found is not None:
            assert self._presence is not None
            self._presence.complete = bool(found)
            return ExitCode.USAGE, difference(found)
        lost = self._lost()
        return (ExitCode.NODE_LOST, self._tell(lost)) if lost else (ExitCode.NODE_MISSING, self._missing(keys))

    def _await(self, step: Callable[[float], _T], timeout_s: float) -> _T | None:
        """Return what a wait of the store does; None when the time is up, or a launcher is gone that it may be for."""
        deadline = Deadline(timeout_s)
        while True:
            try:
                return step(min(_LOOK_S, deadline.remaining()))
            except DistTimeoutError:
                if deadline.expired() or self._lost() is not None:
                    return None

    def _lost(self) -> Loss | None:
        return self._presence.lost if self._presence is not None else None

    def _tell(self, lost: Loss) -> str:
        return f"node {lost.node_rank} is lost: {lost.text} ({self._where})"

    def verdicts(self, attempt: int) -> Verdicts | ElasticVerdicts:
        """Return what tells how an attempt ends."""
        return Verdicts(self.store, self._config, attempt, self._hosts, self._lost)

    def last_word(self) -> list[str]:
        """Return the command that tells the others that this launcher was killed; nothing on node 0."""
        node, config = self._config.node_rank, self._config
        return command(config.master_addr, config.master_port_of_nodes, word_of(node)) if node else []

    def _missing(self, keys: list[str]) -> str:
        lacking = [str(node) for node, key in enumerate(keys) if not self.store.check([key])]
        nodes = f"node {lacking[0]} has" if len(lacking) == 1 else f"nodes {', '.join(lacking)} have"
        return (
            f"{nodes} not joined at {self._where} within {self._config.join_timeout_s:g} s; start `rankwise run "
            f"--nnodes {self._config.nnodes} --node-rank {lacking[0]} ...` there"
        )


def _terms(config: LaunchConfig) -> dict[str, Any]:
    """Return what must be the same on all nodes, by its name."""
    kind = ["-m"] * config.module + ["--no-python"] * config.no_python
    return {
        "the version of rankwise": __version__,
        "--nnodes": config.nnodes if config.min_nodes == config.nnodes else f"{config.min_nodes}:{config.nnodes}",
        "--max-restarts": config.max_restarts,
        "--elastic": "given" if config.elastic else "not given",
        "--min-ranks": config.min_ranks or "not given",
        "the command": shlex.join([*kind, *config.command]),
    }


def difference(claims: Sequence[bytes]) -> str:
    """Say in what a node was started otherwise than node 0, "" if none was."""
    first, *others = map(json.loads, claims or [b"{}"])
    for other in others:
        for name, value in first["terms"].items():
            found = other["terms"].get(name)
            if found != value:
                here = f"a node on {other['host']}" if other["node"] == UNNUMBERED else _named(other)
                where = f"{value} on {_named(first)} and {found} on {here}"
                return f"the launchers were started differently: {name} is {where}"
    return ""


def _named(claim: dict[str, Any]) -> str:
    return f"node {claim['node']} ({claim['host']})"


def two_launchers(host: str, node_rank: int) -> str:
    return f"another launcher, on {host}, is node {node_rank} already; check --node-rank"
