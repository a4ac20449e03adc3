"""How a job of several nodes ends, and who comes and goes until then, for the event loop of an attempt."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict

from rankwise_launch.config import ExitCode
from rankwise_launch.job_log import JobLog
from rankwise_launch.roster import NodeJoined, NodeLost
from rankwise_launch.verdict import Verdict
from rankwise_launch.words import Loss


class Verdicts:
    """Tells this node what is in the log, and lets it have its say there.

    Args:
        log: The log of the job.
        node_rank: This node's number.
        lost: Returns what has become of node 0, if it is gone.

    Attributes:
        node_rank: As above.
    """

    def __init__(self, log: JobLog, node_rank: int, lost: Callable[[], Loss | None]) -> None:
        self._log, self.node_rank, self._lost = log, node_rank, lost
        self._host = socket.gethostname()
        self._has_left = False
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)
        log.listener = self._wake
        self._wake()

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is news."""
        return self._reader

    def clear(self) -> None:
        """Make the descriptor wait for the next news."""
        with suppress(BlockingIOError):
            os.read(self._reader, 4096)

    @property
    def current(self) -> Verdict | None:
        """The verdict, once there is one: on the job, or on this attempt."""
        with self._log.changed:
            roster, lost = self._log.roster, self._lost()
            if roster.verdict is not None:
                return roster.verdict
            if lost is not None:
                root = roster.members.get(lost.node_rank)
                return self._loss(lost.node_rank, self._host if root is None else root.host, lost.text)
            if roster.round_end is not None:
                return roster.round_end
            me = roster.of(self._log.launcher)
            if (me is None or me.is_lost) and not self._has_left:
                # As after it was suspended. Others may have its ranks' numbers already.
                return self._loss(self.node_rank, self._host, "the others have given it up, and go on without it")
            return None

    @property
    def killed(self) -> bool:
        """Whether a second signal to a launcher has asked that all ranks be killed."""
        with self._log.changed:
            return self._log.roster.is_killed

    def take_news(self) -> list[NodeLost | NodeJoined]:
        """Return which nodes have come and gone."""
        return self._log.take_news()

    def note_handled(self) -> None:
        """Have others take the places of nodes whose loss was told."""
        with self._log.changed:
            self._log.is_handled = not self._log.roster.news

    def failed(self, exit_code: int, text: str) -> None:
        """Say that the attempt has failed on this node."""
        self._write("fail", Verdict(False, self.node_rank, self._host, exit_code, text))

    def stopped(self, number: int, name: str) -> None:
        """Say that a signal to the launcher of this node has stopped the job."""
        text = f"its launcher was stopped by {name}"
        self._write("give", Verdict(False, self.node_rank, self._host, 128 + number, text, number))

    def leave(self, name: str) -> None:
        """Say that this node leaves the job by a signal."""
        self._has_left = True
        self._log.write("lost", self._log.launcher, f"its launcher was stopped by {name}")

    def kill(self) -> None:
        """Ask all nodes to kill their ranks immediately."""
        self._log.write("kill")

    def finish(self, rank: int) -> None:
        """Say that a rank of this node has ended well."""
        self._log.write("finish", rank)

    def node_is_done(self) -> None:
        """Say that all ranks of this node have ended; the last node's word ends the job."""
        self._log.write("done")

    def close(self) -> None:
        """Stop listening."""
        with self._log.changed:
            self._log.listener = None
        os.close(self._reader)
        os.close(self._writer)

    def _write(self, kind: str, verdict: Verdict) -> None:
        self._log.write(kind, asdict(verdict))

    def _loss(self, node: int, host: str, text: str) -> Verdict:
        return Verdict(False, node, host, ExitCode.NODE_LOST, text, lost=True)

    def _wake(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._writer, b"!")
