"""Launchers side by side on loopback, each of which is a node of one job."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from tests import warm
from tests.command_line import Shell
from tests.processes import wait_until

from rankwise import TCPStore
from rankwise_network import secret

#: The exit code, and what was printed.
End: TypeAlias = "tuple[int | None, str, str]"


class Cluster(Shell):
    """Some nodes of one job, which share a folder, a port and a job secret."""

    def __init__(self, folder: Path, timeout_s: float) -> None:
        super().__init__(folder, timeout_s)
        secret.new_file(folder / "secret")
        self.environment["RANKWISE_SECRET_FILE"] = str(folder / "secret")
        self.port = free_pair()
        #: Where the launchers meet.
        self.meeting = ["--master-addr", "127.0.0.1", "--master-port", str(self.port)]
        self.nodes: list[warm.Process] = []

    def begin(self, node: int | None, *arguments: str, nnodes: int | str = 2, module: str = "rankwise") -> warm.Process:
        where = ["--nnodes", str(nnodes), *self.meeting, "--join-timeout", "20"]
        where += [] if node is None else ["--node-rank", str(node)]
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


class Nodes(Cluster):
    """Nodes that come and go.

    Args:
        folder: Where they work.
        timeout_s: How long a test waits.
        options: Of all launchers.
    """

    def __init__(self, folder: Path, timeout_s: float, *options: str) -> None:
        super().__init__(folder, timeout_s)
        self.options = options

    def start_nodes(self, count: int, *words: str, nnodes: int | str = 3) -> list[warm.Process]:
        """Start nodes with their numbers."""
        return [self.come(node, *words, nnodes=nnodes) for node in range(count)]

    def come(self, node: int | None, *words: str, nnodes: int | str = 3) -> warm.Process:
        return self.begin(node, *self.options, *words, nnodes=nnodes)

    def are_ready(self, *names: str) -> bool:
        """Wait for ranks, as RANK-LIFE, and no longer if all launchers have ended."""
        ready = [self.folder / f"ready-{name}" for name in names]
        wait_until(lambda: all(path.exists() for path in ready) or not self._is_any_there(), self.timeout_s)
        return all(path.exists() for path in ready)

    def _is_any_there(self) -> bool:
        return any(node.poll() is None for node in self.nodes)

    def hear(self, node: warm.Process, words: str) -> str:
        """Return the first line of a launcher that has some words."""
        assert node.stderr is not None
        for line in node.stderr:
            if words in line:
                return str(line)
        raise AssertionError(f"it has never said {words!r}")

    def has(self, key: str) -> bool:
        """Tell whether the store of the launchers has a key."""
        known = secret.from_hex((self.folder / "secret").read_text())
        with TCPStore("127.0.0.1", self.port + 1, timeout=self.timeout_s, secret=known) as store:
            return store.check([key])

    def go(self, *nodes: warm.Process) -> list[End]:
        (self.folder / "go").touch()
        return self.finish(*nodes)


def free_pair() -> int:
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
