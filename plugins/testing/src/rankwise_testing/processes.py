"""The processes of the harness: started, connected, looked at and ended, with all that they have started."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge, wait
from pathlib import Path
from typing import Any

from rankwise.errors import DistTimeoutError
from rankwise.kits import Deadline
from rankwise_launch.toolbox import Forked
from rankwise_testing.messages import STACKS_SIGNAL, Setup
from rankwise_testing.origins import Origin

#: What another launcher has told this process about itself is not true of the processes started here.
_PLACES = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"),
    "RANKWISE_STORE",
)

#: What ranks run; the program itself runs as `__main__` in each.
_WORKER = "rankwise_testing.worker"

_STACKS_S = 2.0
_LAUNCHER_S = 2.0
#: What fits into the address of a Unix socket.
_LONGEST_PATH = 100
_LAST_LINES = 30


class Processes:
    """One process for each rank, and a connection to each.

    Args:
        size: Number of ranks.
        launch: The command that starts them; if empty they are started directly.
        env: Variables to set.
        timeout_s: How long they may take to connect.
        origin: What they are forked from if they are started directly.

    Attributes:
        connections: By rank.
    """

    def __init__(
        self, size: int, launch: Sequence[str], env: Mapping[str, str], timeout_s: float, origin: Origin
    ) -> None:
        if not hasattr(os, "killpg"):
            raise OSError("run_ranks needs processes of a POSIX system; local_world runs ranks as threads anywhere")
        self.size = size
        self.connections: list[Connection[Any, Any]] = []
        self._pids: list[int] = []
        self._started: list[subprocess.Popen[bytes] | Forked] = []
        self._read = [0] * size
        self._directory = _new_directory()
        self._port = _reserved_port()
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._start([part.replace("{size}", str(size)) for part in launch], env, origin)
            self._connect(env, Deadline(timeout_s))
        except BaseException:
            self.kill()
            raise

    def end_of(self, rank: int) -> str:
        """Say how a process ended whose connection is closed."""
        if len(self._started) == 1 < self.size:
            return "its process has ended"
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._started[rank].wait(5)
            if code is None:
                return "its process has ended"
            return f"killed by {signal.Signals(-code).name}" if code < 0 else f"its process ended with exit code {code}"
        return "its process has closed the connection"

    def new_output(self) -> str:
        """Return what the processes have printed since this was last asked."""
        texts = []
        for i in range(len(self._started)):
            with open(self._directory / f"output-{i}", "rb") as file:
                file.seek(self._read[i])
                data = file.read()
            self._read[i] += len(data)
            texts.append(data.decode(errors="replace"))
        return "".join(texts)

    def last_lines(self, rank: int) -> str:
        """Return the end of what a rank (or the launcher of all) has printed, as an appendix for a message."""
        path = self._directory / f"output-{rank if len(self._started) == self.size else 0}"
        lines = path.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        return "\nit printed last:\n" + "\n".join(lines) if lines else ""

    def stacks(self, ranks: Sequence[int]) -> str:
        """Return the stacks of all threads of some ranks, as an appendix for a message."""
        for rank in ranks:
            # While the connection is open its process is there, and the number still its own.
            if STACKS_SIGNAL and not self.connections[rank].closed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pids[rank], STACKS_SIGNAL)
        deadline = Deadline(_STACKS_S)
        return "".join(f"\n\nrank {rank} is here:\n{self._stack(rank, deadline)}" for rank in ranks)

    def close(self, timeout_s: float) -> None:
        """Tell all processes to end, and kill those that do not."""
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.send(None)
        deadline = Deadline(timeout_s)
        for process in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(deadline.remaining())
        self.kill()

    def kill(self) -> None:
        """End everything immediately; may be called again."""
        for connection in self.connections:
            connection.close()  # which ends every process that can still run a line of Python
        if len(self._started) == 1 < self.size:
            # A launcher ends its processes if it is asked to, and knows better than we where they are.
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.kill(self._started[0].pid, signal.SIGTERM)
                self._started[0].wait(_LAUNCHER_S)
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.connections, self._started = [], []
        self._port.close()
        self._listener.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self, launch: list[str], env: Mapping[str, str], origin: Origin) -> None:
        common = {
            **{name: value for name, value in os.environ.items() if name not in _PLACES},
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            **_constant(env),
        }
        common.setdefault("OMP_NUM_THREADS", "1")  # ranks that each take all cores slow each other down
        _write_secret(self._directory / "key")
        self._listener.bind(str(self._directory / "socket"))
        self._listener.listen(self.size)
        master = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self._port.getsockname()[1])}
        if launch:
            self._begin({**master, **common}, None, [_program(launch[0]), *launch[1:]])
            return
        # What modules read as they are loaded is each rank's own if it names the rank.
        forked_from = None if any("{rank}" in value for value in env.values()) else origin
        if forked_from:
            forked_from.prepare(common)
        for rank in range(self.size):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": self.size, "LOCAL_WORLD_SIZE": self.size}
            place_text = {name: str(value) for name, value in place.items()}
            self._begin({**common, **master, **place_text, **_of_rank(env, rank)}, forked_from)

    def _begin(self, environment: Mapping[str, str], origin: Origin | None, launch: Sequence[str] = ()) -> None:
        """Start a rank, or what launches all of them."""
        directory = str(self._directory)
        with open(self._directory / f"output-{len(self._started)}", "wb") as output:
            forked = origin.fork([_WORKER, directory], environment, output.fileno()) if origin else None
            self._started.append(
                forked
                or subprocess.Popen(
                    [*launch, sys.executable, "-m", _WORKER, directory],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # its process group is exactly what it has started
                )
            )

    def _connect(self, env: Mapping[str, str], deadline: Deadline) -> None:
        key = (self._directory / "key").read_bytes()
        found: dict[int, tuple[Connection[Any, Any], int]] = {}
        with self._listener:
            while len(found) < self.size:
                connection = Connection(self._accept(found, deadline).detach())
                deliver_challenge(connection, key)
                answer_challenge(connection, key)
                rank, pid = connection.recv()
                found[rank] = connection, pid
        for rank in range(self.size):
            connection, pid = found[rank]
            self.connections.append(connection)
            self._pids.append(pid)
            connection.send(Setup(list(sys.path), os.environ.get("PYTHONPATH"), _of_rank(env, rank)))

    def _accept(self, found: Mapping[int, Any], deadline: Deadline) -> socket.socket:
        while True:
            if wait([self._listener], min(0.1, deadline.remaining())):
                return self._listener.accept()[0]
            ended = [i for i, process in enumerate(self._started) if process.poll() is not None]
            if ended or deadline.expired():
                missing = ", ".join(str(rank) for rank in range(self.size) if rank not in found)
                what = "ended before it connected" if ended else f"did not come within {deadline.timeout_s:g} s"
                text = f"the process of rank {missing} of {self.size} {what}{self.last_lines(ended[0] if ended else 0)}"
                raise ChildProcessError(text) if ended else DistTimeoutError(text)

    def _stack(self, rank: int, deadline: Deadline) -> str:
        path = self._directory / f"stacks-{self._pids[rank]}"
        text, previous = path.read_text(), None
        while not deadline.expired() and (not text or text != previous):
            time.sleep(0.02)  # it is written in pieces
            text, previous = path.read_text(), text
        blocks = [block for block in text.strip().split("\n\n") if " in _listen\n" not in block]
        return "\n\n".join(blocks) or "(it does not answer)"


def _new_directory() -> Path:
    """Make a folder of this user's own whose path is short enough for a socket."""
    directory = Path(tempfile.mkdtemp(prefix="rankwise-"))
    if len(os.fsencode(directory / "socket")) > _LONGEST_PATH:
        directory.rmdir()
        directory = Path(tempfile.mkdtemp(prefix="rankwise-", dir="/tmp"))
    return directory


def _reserved_port() -> socket.socket:
    """Return a socket that holds a free port: nobody else is given it, but who sets SO_REUSEADDR can listen there."""
    holder = socket.socket(socket.AF_INET)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder


def _write_secret(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(secrets.token_bytes(32))


def _program(name: str) -> str:
    """Find a launcher: beside this Python before anywhere else, as the two belong together."""
    beside = os.path.dirname(sys.executable)
    found = shutil.which(name, path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))
    if found is None:
        raise FileNotFoundError(f"there is no program {name!r} to start the ranks with")
    return found


def _of_rank(env: Mapping[str, str], rank: int) -> dict[str, str]:
    return {name: value.replace("{rank}", str(rank)) for name, value in env.items()}


def _constant(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if "{rank}" not in value}
