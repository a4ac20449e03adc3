"""The launcher's side of `preload`, the process that ranks are forked from."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from rankwise_launch.config import ExitCode, LaunchConfig, LaunchError
from rankwise_launch.preload import HEAD_NBYTES, read

__all__ = ["Forked", "Preloaded"]

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
        stdout: Where its output comes.
        stderr: Where its errors come.
        returncode: How it has ended, once it has been asked for.
    """

    def __init__(self, pid: int, stdout: IO[bytes], stderr: IO[bytes], ask: Callable[[str, int], int | None]) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
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

    def wait(self) -> int | None:
        """Wait for its end."""
        if self.returncode is None:
            with suppress(LaunchError):  # its parent has gone, and nobody knows
                self.returncode = self._ask("wait", self.pid)
        return self.returncode


class Preloaded:
    """The process, from its start to its end.

    Raises:
        LaunchError: Something cannot be preloaded; the text says what.
    """

    def __init__(self, config: LaunchConfig, environment: Mapping[str, str], secret_fd: int) -> None:
        self._module = config.module
        mine, theirs = socket.socketpair()
        self._line = mine
        program = str(Path(__file__).with_name("preload.py"))
        self._printed = b""
        self._output, theirs_out = os.pipe()
        os.set_blocking(self._output, False)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, program, str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=theirs_out,
                stderr=theirs_out,
                pass_fds=(secret_fd, theirs.fileno()),
                start_new_session=True,
            )
        os.close(theirs_out)
        try:
            self._import(config)
        except BaseException:
            self.__exit__(None, None, None)
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
            order = {"do": "fork", "argv": list(command), "environment": dict(environment), "module": self._module}
            answer = self._talk(order, [0 if null < 0 else null, out[1], err[1]])
            if "error" in answer:
                raise LaunchError(ExitCode.CANNOT_START, f"cannot start a rank: {answer['error']}")
        except BaseException:
            os.close(out[0])
            os.close(err[0])
            raise
        finally:
            for descriptor in (out[1], err[1], *([null] if null >= 0 else [])):
                os.close(descriptor)
        return Forked(answer["pid"], os.fdopen(out[0], "rb", 0), os.fdopen(err[0], "rb", 0), self._ask)

    def __enter__(self) -> Preloaded:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.close()
        self._process.wait()
        os.close(self._output)

    def _import(self, config: LaunchConfig) -> None:
        folder = os.getcwd() if config.module else str(Path(config.command[0]).resolve().parent)
        modules = [*config.preload, *(["rankwise_launch.ready"] if "rankwise" in config.preload else [])]
        program = "" if config.module else config.command[0]
        trouble = self._talk({"modules": modules, "folder": folder, "program": program}, [])
        if trouble:
            text = f"--preload {trouble['text']}{_ADVICE[trouble['kind']]}"
            code = ExitCode.NOT_FOUND if trouble["kind"] == "missing" else ExitCode.CANNOT_START
            raise LaunchError(code, text)

    def _ask(self, do: str, pid: int) -> int | None:
        code: int | None = self._talk({"do": do, "pid": pid}, [])["code"]
        return code

    def _talk(self, order: Mapping[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        data = json.dumps(order).encode()
        answer = None
        with suppress(OSError):
            socket.send_fds(self._line, [len(data).to_bytes(HEAD_NBYTES, "big")], descriptors)
            self._line.sendall(data)
            self._listen()
            answer, _ = read(self._line, 0)
        if answer is None:
            said = self.said()
            text = "the process that ranks are forked from has ended" + (f":\n{said}" if said else "")
            raise LaunchError(ExitCode.CANNOT_START, text)
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
