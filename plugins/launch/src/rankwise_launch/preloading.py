"""The launcher's side of `preload`, the process that ranks are forked from."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from rankwise.launching import Deadline
from rankwise_launch.config import ExitCode, LaunchError
from rankwise_launch.preload import HEAD_NBYTES, read

#: How often somebody who does not wait for longer looks whether a process has ended.
_LOOK_S = 0.005
#: With more threads than one, numerical libraries start them as soon as they are imported.
_ADVICE = {
    "threads": "; leave it out, or have its library use one thread, as OMP_NUM_THREADS=1 does for most",
    "missing": "",
    "failed": "",
}


class Forked:
    """One rank's process, with the methods of `subprocess.Popen` that the launcher uses.

    Attributes:
        pid: Its number.
        stdout: Where its output comes, if that is a pipe.
        stderr: Where its errors come, if that is a pipe.
        returncode: How it has ended, once it has been asked for.
    """

    def __init__(self, pid: int, ask: Callable[[str, int], int | None]) -> None:
        self.pid = pid
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        self.returncode: int | None = None
        self._ask = ask

    def look(self) -> int | None:
        """Return how it has ended, and leave that to be read by others."""
        return self._ask("look", self.pid) if self.returncode is None else self.returncode

    def poll(self) -> int | None:
        """Return how it has ended, and let go of it."""
        if self.returncode is None:
            self.returncode = self._ask("poll", self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end, or raise `subprocess.TimeoutExpired`."""
        with suppress(LaunchError):  # its parent has gone, and nobody knows
            if timeout is None and self.returncode is None:
                self.returncode = self._ask("wait", self.pid)
            deadline = Deadline(timeout or 0.0)
            while timeout is not None and self.poll() is None:
                if deadline.expired():
                    raise subprocess.TimeoutExpired(str(self.pid), timeout)
                time.sleep(_LOOK_S)
        return self.returncode


class Preloaded:
    """The process, from its start to its end.

    Args:
        modules: What to import.
        environment: Its environment; a rank has its own.
        folder: Where ranks find modules first.
        program: The file that the ranks run; nothing if they run a module.
        pass_fds: Descriptors that ranks inherit.

    Raises:
        LaunchError: Something cannot be preloaded; the text says what.
    """

    def __init__(
        self,
        modules: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        program: str = "",
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._program = program
        mine, theirs = socket.socketpair()
        self._line = mine
        preload = str(Path(__file__).with_name("preload.py"))
        self._printed, self._asked = b"", False
        self._output, theirs_out = os.pipe()
        os.set_blocking(self._output, False)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, preload, str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=theirs_out,
                stderr=theirs_out,
                pass_fds=(*pass_fds, theirs.fileno()),
                start_new_session=True,
            )
        os.close(theirs_out)
        try:
            self._import(modules, folder)
        except BaseException:
            self.close()
            raise

    def said(self) -> str:
        """Return what the modules have printed."""
        return self._printed.decode(errors="replace").rstrip()

    def fork(self, command: Sequence[str], environment: Mapping[str, str], stdin: int | None) -> Forked:
        """Start a rank, as `subprocess.Popen` would with pipes for its output.

        Raises:
            LaunchError: The system refuses.
        """
        out, err = os.pipe(), os.pipe()
        null = os.open(os.devnull, os.O_RDONLY) if stdin == subprocess.DEVNULL else -1
        try:
            forked = self.fork_into((0 if null < 0 else null, out[1], err[1]), command, environment)
        except BaseException:
            os.close(out[0])
            os.close(err[0])
            raise
        finally:
            for descriptor in (out[1], err[1], *([null] if null >= 0 else [])):
                os.close(descriptor)
        forked.stdout, forked.stderr = os.fdopen(out[0], "rb", 0), os.fdopen(err[0], "rb", 0)
        return forked

    def fork_into(self, streams: Sequence[int], command: Sequence[str], environment: Mapping[str, str]) -> Forked:
        """Start a rank with these descriptors as its standard streams.

        Raises:
            LaunchError: The system refuses.
        """
        order = {"do": "fork", "argv": list(command), "environment": dict(environment), "module": not self._program}
        answer = self._talk(order, streams)
        if "error" in answer:
            raise LaunchError(ExitCode.CANNOT_START, f"cannot start a rank: {answer['error']}")
        return Forked(answer["pid"], self._ask)

    def is_ready(self) -> bool:
        """Tell whether the process is there, and has answered all that it was asked."""
        return not self._asked and self._process.poll() is None

    def close(self) -> None:
        """End the process, but not the ranks; again does nothing."""
        if self._output >= 0:
            self._line.close()
            self._process.wait()
            os.close(self._output)
            self._output = -1

    def __enter__(self) -> Preloaded:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _import(self, modules: Sequence[str], folder: str) -> None:
        more = ["rankwise_launch.ready"] if "rankwise" in modules else []
        trouble = self._talk({"modules": [*modules, *more], "folder": folder, "program": self._program}, [])
        if trouble:
            text = f"--preload {trouble['text']}{_ADVICE[trouble['kind']]}"
            code = ExitCode.NOT_FOUND if trouble["kind"] == "missing" else ExitCode.CANNOT_START
            raise LaunchError(code, text)

    def _ask(self, do: str, pid: int) -> int | None:
        code: int | None = self._talk({"do": do, "pid": pid}, [])["code"]
        return code

    def _talk(self, order: Mapping[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        if self._asked:  # an interrupt has left an answer unread, or a question unsaid: what comes next fits nothing
            text = "an interrupt broke off what was said to the process that ranks are forked from"
            raise LaunchError(ExitCode.CANNOT_START, text)
        data = json.dumps(order).encode()
        answer, self._asked = None, True
        with suppress(OSError):
            socket.send_fds(self._line, [len(data).to_bytes(HEAD_NBYTES, "big")], descriptors)
            self._line.sendall(data)
            self._listen()
            answer, _ = read(self._line, 0)
        if answer is None:
            said = self.said()
            text = "the process that ranks are forked from has ended" + (f":\n{said}" if said else "")
            raise LaunchError(ExitCode.CANNOT_START, text)
        self._asked = False
        return answer

    def _listen(self) -> None:
        """Read what is printed until there is an answer."""
        line, output = self._line.fileno(), self._output
        listened = [line, output]
        while True:
            ready = select.select(listened, [], [])[0]
            if output in ready:
                data = os.read(output, 1 << 16)
                self._printed += data
                listened = listened if data else [line]
            elif line in ready:
                return
