"""How the launchers of several nodes find each other, and tell each other how an attempt ends.

They meet in a store of their own, next to the port at which the ranks meet.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from rankwise.backends import start_thread
from rankwise.errors import DistError, DistTimeoutError
from rankwise.launching import Deadline, __version__
from rankwise_launch.config import UNNUMBERED, ExitCode, LaunchConfig, LaunchError
from rankwise_launch.presence import Loss, Presence, say_first, silence_s
from rankwise_launch.tally import SharedTally

if TYPE_CHECKING:
    from rankwise_stores import TCPStore

__all__ = ["Nodes", "Verdict", "Verdicts"]

#: How long the launcher that serves the store waits for the others to have read the last verdict.
_FAREWELL_S = 3.0
#: How long to look who has the port.
_WHO_S = 3.0
#: How often whoever waits looks whether the others are there; and how long node 0 may take to answer.
_LOOK_S, _ANSWER_S = 0.5, 5.0

_T = TypeVar("_T")


@dataclass(frozen=True)
class Verdict:
    """How an attempt has ended, for all nodes alike: the first that is given counts."""

    success: bool
    node_rank: int
    host: str
    exit_code: int
    text: str
    #: The signal by which the node's launcher was stopped; 0 if it ended otherwise.
    signal: int = 0
    #: Whether the node is lost, so that there is no other attempt.
    lost: bool = False

    @property
    def is_final(self) -> bool:
        """Whether there is no other attempt."""
        return self.lost or self.signal != 0


class Nodes:
    """This launcher's connection to those of the other nodes."""

    def __init__(self, config: LaunchConfig) -> None:
        from rankwise_stores import TCPStore  # which a job of one node has no need of

        self._config = config
        self._silence_s = silence_s()
        self._presence: Presence | None = None
        self._hosts: list[str] = []
        self._place = f"{config.master_addr}:{config.master_port_of_nodes}"
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
                f"the launcher of node 0 has not answered at {self._place} within {config.join_timeout_s:g} s; is it "
                f"running there, with the same job secret, and is the port open?",
            ) from error
        except (DistError, OSError, ValueError) as error:
            if config.node_rank == 0 and (owner := self._other_node_0()):
                raise LaunchError(ExitCode.USAGE, _two_launchers(owner, 0)) from error
            code = ExitCode.PORT_IN_USE if config.node_rank == 0 else ExitCode.NODE_MISSING
            raise LaunchError(code, f"the launchers cannot meet at {self._place}: {error}") from error
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
                f"there are {self._config.nnodes} launchers already that meet at {self._place}, as --nnodes says",
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

    def join(self, attempt: int, store_port: int) -> tuple[list[int], int]:
        """Wait for all launchers; return how many ranks each node has, and where node 0 serves their store.

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
        return [int(node["nproc"]) for node in nodes], int(nodes[0]["store"])

    def _keys(self, attempt: int) -> list[str]:
        return [f"{attempt}/node/{node}" for node in range(self._config.nnodes)]

    def _claim(self, attempt: int, store_port: int) -> None:
        """Take this node's place, and say from then on that it is there.

        Raises:
            LaunchError: Another launcher has the place.
        """
        config, key = self._config, self._keys(attempt)[self._config.node_rank]
        mine = {"node": config.node_rank, "host": socket.gethostname(), "pid": os.getpid(), "terms": _terms(config)}
        mine |= {"nproc": config.nproc_per_node, "store": store_port}
        if self._presence is None:
            say_first(self.store, config.node_rank)
        found = json.loads(self.store.compare_set(key, b"", json.dumps(mine).encode()))
        if found != mine:
            raise LaunchError(ExitCode.USAGE, _two_launchers(str(found["host"]), config.node_rank))
        if self._presence is None:
            self._presence = Presence(self.store, config.node_rank, config.nnodes, self._silence_s)

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
            if difference := _difference(claims or []):
                self._decide(joined, ExitCode.USAGE, difference)
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
            return ExitCode.USAGE, _difference(found)
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
        return f"node {lost.node_rank} is lost: {lost.text} ({self._place})"

    def verdicts(self, attempt: int) -> Verdicts:
        """Return what tells how an attempt ends."""
        return Verdicts(self.store, self._config, attempt, self._hosts, self._lost)

    def tally(self, attempt: int) -> SharedTally:
        """Return what counts the failures on all nodes."""
        return SharedTally(self.store, attempt, self._config.max_restarts)

    def _missing(self, keys: list[str]) -> str:
        lacking = [str(node) for node, key in enumerate(keys) if not self.store.check([key])]
        nodes = f"node {lacking[0]} has" if len(lacking) == 1 else f"nodes {', '.join(lacking)} have"
        return (
            f"{nodes} not joined at {self._place} within {self._config.join_timeout_s:g} s; start `rankwise run "
            f"--nnodes {self._config.nnodes} --node-rank {lacking[0]} ...` there"
        )


def _terms(config: LaunchConfig) -> dict[str, Any]:
    """Return what must be the same on all nodes, by its name."""
    kind = ["-m"] * config.module + ["--no-python"] * config.no_python
    return {
        "the version of rankwise": __version__,
        "--nnodes": config.nnodes,
        "--max-restarts": config.max_restarts,
        "--elastic": "given" if config.elastic else "not given",
        "--min-ranks": config.min_ranks,
        "the command": shlex.join([*kind, *config.command]),
    }


def _difference(claims: Sequence[bytes]) -> str:
    """Say in what a node was started otherwise than node 0, "" if none was."""
    first, *others = map(json.loads, claims or [b"{}"])
    for other in others:
        for name, value in first["terms"].items():
            found = other["terms"].get(name)
            if found != value:
                where = f"{value} on node 0 ({first['host']}) and {found} on node {other['node']} ({other['host']})"
                return f"the launchers were started differently: {name} is {where}"
    return ""


def _two_launchers(host: str, node_rank: int) -> str:
    return f"another launcher, on {host}, is node {node_rank} already; check --node-rank"


class Verdicts:
    """Waits, on a thread, for how an attempt ends, and lets this node have its say.

    Attributes:
        current: The verdict, once there is one.
        killed: Whether a second signal to a launcher has asked that all ranks be killed.
    """

    def __init__(
        self,
        store: TCPStore,
        config: LaunchConfig,
        attempt: int,
        hosts: Sequence[str],
        lost: Callable[[], Loss | None],
    ) -> None:
        self._store, self._config, self._attempt, self._hosts, self._lost = store, config, attempt, hosts, lost
        self._key = f"{attempt}/verdict"
        #: One for each node: a node that stops waiting says so to itself alone.
        self._kill_keys = [f"{attempt}/kill/{node}" for node in range(config.nnodes)]
        self.current: Verdict | None = None
        self.killed = False
        self._reader, self._writer = os.pipe()
        self._closing = False
        self._thread = threading.Thread(target=self._listen, name="rankwise verdicts", daemon=True)
        start_thread(self._thread)

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is news."""
        return self._reader

    def clear(self) -> None:
        """Make the descriptor wait for the next news."""
        os.read(self._reader, 1)

    def failed(self, exit_code: int, text: str) -> None:
        """Say that the attempt has failed on this node."""
        self._give(Verdict(False, self._config.node_rank, socket.gethostname(), exit_code, text))

    def stopped(self, number: int, name: str) -> None:
        """Say that a signal has stopped the launcher of this node."""
        text = f"its launcher was stopped by {name}"
        self._give(Verdict(False, self._config.node_rank, socket.gethostname(), 128 + number, text, number))

    def kill(self) -> None:
        """Ask all nodes to kill their ranks immediately."""
        with contextlib.suppress(DistError):
            self._store.multi_set(self._kill_keys, [b"kill"] * len(self._kill_keys))

    def node_is_done(self) -> None:
        """Say that all ranks of this node have ended well; the last node's word ends the attempt."""
        with contextlib.suppress(DistError):  # if the store is gone the listening thread tells of it
            if self._store.add(f"{self._attempt}/done", 1) == self._config.nnodes:
                self._give(Verdict(True, self._config.node_rank, socket.gethostname(), 0, ""))

    def close(self) -> None:
        """Stop waiting."""
        self._closing = True
        with contextlib.suppress(DistError):
            # Wakes the thread where there has been no verdict, or no second signal.
            self._store.compare_set(self._key, b"", b"null")
            self._store.compare_set(self._kill_keys[self._config.node_rank], b"", b"closed")
        self._thread.join(5.0)
        os.close(self._reader)
        os.close(self._writer)

    def _give(self, verdict: Verdict) -> None:
        with contextlib.suppress(DistError):
            self._store.compare_set(self._key, b"", json.dumps(asdict(verdict)).encode())

    def _listen(self) -> None:
        verdict = self._awaited(self._key)
        if verdict is not None and (found := json.loads(verdict)):
            self.current = Verdict(**found)
        os.write(self._writer, b"!")
        if self.current is not None and self.current.signal:
            self.killed = self._awaited(self._kill_keys[self._config.node_rank]) == b"kill"
            os.write(self._writer, b"!")

    def _awaited(self, key: str) -> bytes | None:
        """Return what a key gets; None once this end stops waiting, or the launcher of node 0 has gone."""
        while not self._closing:
            try:
                return self._store.get(key, _LOOK_S)
            except DistTimeoutError:
                lost = self._lost()
            except (DistError, OSError) as error:
                lost = self._lost() or Loss(0, f"its launcher is gone: {error}")
            if lost is not None and lost.node_rank == 0:
                self.current = self.current or self._of(lost)
                break
            if lost is not None:
                self._give(self._of(lost))  # as node 0, for all
        return None

    def _of(self, lost: Loss) -> Verdict:
        host = self._hosts[lost.node_rank]
        return Verdict(False, lost.node_rank, host, ExitCode.NODE_LOST, lost.text, lost=True)
