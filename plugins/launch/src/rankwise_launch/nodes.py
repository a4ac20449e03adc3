"""How the launchers of several nodes find each other, and tell each other how an attempt ends.

They meet in a store of their own, next to the port at which the ranks meet.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from rankwise.backends import start_thread
from rankwise.errors import DistError, DistTimeoutError
from rankwise_launch.config import ExitCode, LaunchConfig, LaunchError

if TYPE_CHECKING:
    from rankwise.store import TCPStore

__all__ = ["Nodes", "Verdict", "Verdicts"]

#: How long the launcher that serves the store waits for the others to have read the last verdict.
_FAREWELL_S = 3.0
#: How long to look who has the port.
_WHO_S = 3.0
#: A job may take any time; a wait in the store may not.
_LOOK_S = 60.0


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


class Nodes:
    """This launcher's connection to those of the other nodes."""

    def __init__(self, config: LaunchConfig) -> None:
        from rankwise.store import TCPStore  # which a job of one node has no need of

        self._config = config
        self._joined = config.nnodes
        self._place = f"{config.master_addr}:{config.master_port_of_nodes}"
        try:
            self.store = TCPStore(
                config.master_addr,
                config.master_port_of_nodes,
                is_master=config.node_rank == 0,
                timeout=config.join_timeout_s,
            )
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

    def _other_node_0(self) -> str:
        """Return the host of the launcher that is node 0 already, "" if what has the port is something else."""
        from rankwise.store import TCPStore

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
            self.store.add("left", 1)
            end = time.monotonic() + (_FAREWELL_S if error is None or isinstance(error, Exception) else 0.0)
            while self._config.node_rank == 0 and self.store.add("left", 0) < self._joined and time.monotonic() < end:
                time.sleep(0.02)
        self.store.close()

    def join(self, attempt: int, store_port: int) -> tuple[list[int], int]:
        """Wait for all launchers; return how many ranks each node has, and where node 0 serves their store.

        Raises:
            LaunchError: Some did not come in time, or two claim to be the same node.
        """
        try:
            owner = self._claim(attempt, store_port)
            missing = "" if owner else self._assemble(attempt)
            nodes = [] if owner or missing else [json.loads(v) for v in self.store.multi_get(self._keys(attempt))]
        except DistError as error:
            text = f"the launcher of node 0 is gone from {self._place}: {error}"
            raise LaunchError(ExitCode.NODE_LOST, text) from error
        if owner:
            raise LaunchError(ExitCode.USAGE, _two_launchers(owner, self._config.node_rank))
        if missing:
            raise LaunchError(ExitCode.NODE_MISSING, missing)
        return [int(node["nproc"]) for node in nodes], int(nodes[0]["store"])

    def _keys(self, attempt: int) -> list[str]:
        return [f"{attempt}/node/{node}" for node in range(self._config.nnodes)]

    def _claim(self, attempt: int, store_port: int) -> str | None:
        """Take this node's place, or return the host that has it."""
        mine = {"nproc": self._config.nproc_per_node, "host": socket.gethostname(), "pid": os.getpid()}
        mine["store"] = store_port
        key = self._keys(attempt)[self._config.node_rank]
        found = json.loads(self.store.compare_set(key, b"", json.dumps(mine).encode()))
        return None if found == mine else str(found["host"])

    def _assemble(self, attempt: int) -> str:
        """Wait until all nodes are there; return who is missing otherwise. Node 0 decides for all."""
        key, timeout_s = f"{attempt}/joined", self._config.join_timeout_s
        if self._config.node_rank != 0:
            return self.store.get(key, timeout_s + _FAREWELL_S).decode()[1:]
        try:
            self.store.wait(self._keys(attempt), timeout_s)
            answer = ""
        except DistTimeoutError:
            answer = self._missing(self._keys(attempt))
        self.store.set(key, f"={answer}")
        return answer

    def verdicts(self, attempt: int) -> Verdicts:
        """Return what tells how an attempt ends."""
        return Verdicts(self.store, self._config, attempt)

    def _missing(self, keys: list[str]) -> str:
        lacking = [str(node) for node, key in enumerate(keys) if not self.store.check([key])]
        self._joined = len(keys) - len(lacking)
        nodes = f"node {lacking[0]} has" if len(lacking) == 1 else f"nodes {', '.join(lacking)} have"
        return (
            f"{nodes} not joined at {self._place} within {self._config.join_timeout_s:g} s; start `rankwise run "
            f"--nnodes {self._config.nnodes} --node-rank {lacking[0]} ...` there"
        )


def _two_launchers(host: str, node_rank: int) -> str:
    return f"another launcher, on {host}, is node {node_rank} already; check --node-rank"


class Verdicts:
    """Waits, on a thread, for how an attempt ends, and lets this node have its say.

    Attributes:
        current: The verdict, once there is one.
        killed: Whether a second signal to a launcher has asked that all ranks be killed.
    """

    def __init__(self, store: TCPStore, config: LaunchConfig, attempt: int) -> None:
        self._store, self._config, self._attempt = store, config, attempt
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
                continue
            except (DistError, OSError) as error:
                text = f"the launcher of node 0 is gone: {error}"
                self.current = self.current or Verdict(False, 0, self._config.master_addr, ExitCode.NODE_LOST, text)
                break
        return None
