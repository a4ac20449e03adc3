"""How an attempt at a job of several nodes ends: each node has its say, and hears what the others have said."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rankwise.backends import start_thread
from rankwise.errors import DistError, DistTimeoutError
from rankwise_launch.config import ExitCode, LaunchConfig
from rankwise_launch.presence import Loss
from rankwise_launch.verdict import Verdict

if TYPE_CHECKING:
    from rankwise_stores import TCPStore

__all__ = ["Verdicts"]

#: How often whoever waits looks whether the others are there.
_LOOK_S = 0.5


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
