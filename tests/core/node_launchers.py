"""Launchers side by side on loopback, each of which is a node of one job."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from tests import warm
from tests.command_line import Shell

from rankwise_network import secret

__all__ = ["Cluster", "End"]

#: The exit code, and what was printed.
End: TypeAlias = "tuple[int | None, str, str]"


class Cluster(Shell):
    """Some nodes of one job, which share a folder, a port and a job secret."""

    def __init__(self, folder: Path, timeout_s: float) -> None:
        super().__init__(folder, timeout_s)
        secret.new_file(folder / "secret")
        self.environment["RANKWISE_SECRET_FILE"] = str(folder / "secret")
        self.port = _free_pair()
        self.nodes: list[warm.Process] = []

    def begin(self, node: int | None, *arguments: str, nnodes: int | str = 2, module: str = "rankwise") -> warm.Process:
        where = ["--nnodes", str(nnodes), "--master-addr", "127.0.0.1"]
        where += [] if node is None else ["--node-rank", str(node)]
        where += ["--master-port", str(self.port), "--join-timeout", "20"]
        self.nodes.append(self.start("run", *where, *arguments, module=module))
        return self.nodes[-1]

    def end(self) -> None:
        """Leave nothing behind, even if a test has failed."""
        for process in self.nodes:
            process.kill()
            process.communicate()

    def ends(self, *arguments: str, nodes: Sequence[int] = (0, 1), nnodes: int = 2) -> list[End]:
        """Run some nodes alike, and return how each of them has ended, and what it has printed."""
        return self.finish(*[self.begin(node, *arguments, nnodes=nnodes) for node in nodes])

    def finish(self, *nodes: warm.Process) -> list[End]:
        ends = [node.communicate(timeout=self.timeout_s) for node in nodes]
        return [(node.returncode, out, err) for node, (out, err) in zip(nodes, ends, strict=True)]


def _free_pair() -> int:
    """Return a port that is free together with the next one."""
    while True:
        with socket.socket() as one, socket.socket() as next_one:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                next_one.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
