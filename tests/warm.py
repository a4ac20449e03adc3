"""Processes that are forked from one that has loaded rankwise: each costs 0.02 s of a processor, and not 0.3.

For what a program or a command does, rather than how an interpreter starts or what it loads. `start` and `run` take
what would follow `python`: `-m MODULE` or a file, and arguments; `call` takes a function.
"""

from __future__ import annotations

import atexit
import functools
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TextIO

from tests.by_reference import command, returned

from rankwise_launch.preloading import Forked, Preloaded

ROOT = str(Path(__file__).resolve().parents[1])
#: Nothing that has looked for backends: programs find those of their own folders.
LOADED = [
    *("numpy", "pytest", "tests.by_reference", "rankwise.cli", "rankwise.backends.communicator"),
    *("rankwise.groups.lifecycle", "rankwise_stores.tcp.pool", "rankwise_stores.tcp.server", "rankwise_watch.watcher"),
    *("rankwise_launch.nodes", "rankwise_launch.run", "rankwise_launch.run_command"),
    *(["rankwise_gloo_tcp.ready"] if find_spec("rankwise_gloo_tcp") else []),
]


class Process:
    """A process that has been forked, with what tests use of `subprocess.Popen`."""

    def __init__(self, forked: Forked, stdout: TextIO | None, stderr: TextIO | None) -> None:
        self.pid, self.stdout, self.stderr = forked.pid, stdout, stderr
        self._forked = forked

    @property
    def returncode(self) -> int | None:
        """How it has ended, once it has been asked for."""
        return self._forked.returncode

    def poll(self) -> int | None:
        """Return how it has ended, if it has."""
        return self._forked.poll()

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end."""
        return self._forked.wait(timeout)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read what is left of its output, and wait for its end; one that takes too long is killed."""
        streams = [stream for stream in (self.stdout, self.stderr) if stream is not None and not stream.closed]
        with ThreadPoolExecutor(2) as readers:
            found = {stream: readers.submit(stream.read) for stream in streams}
            if wait(found.values(), timeout).not_done:
                self.kill()
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        self.wait(timeout)
        for stream in streams:
            stream.close()
        out, err = (found[stream].result() if stream in found else "" for stream in (self.stdout, self.stderr))
        return out, err

    def send_signal(self, number: int) -> None:
        """Send a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it and what has stayed in its process group."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # a test has failed that would have had it end
            self.kill()
        self.wait()
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()


@functools.cache
def _origin() -> Preloaded:
    environment = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
    origin = Preloaded(LOADED, environment, ROOT)
    atexit.register(origin.close)
    return origin


@contextmanager
def _stream(wanted: int) -> Iterator[tuple[int, TextIO | None]]:
    """Yield what a process is to write to, and, of a pipe, where that is read."""
    if wanted >= 0:
        yield wanted, None
        return
    reader, writer = os.pipe() if wanted == subprocess.PIPE else (-1, os.open(os.devnull, os.O_WRONLY))
    try:
        yield writer, None if reader < 0 else os.fdopen(reader)
    finally:
        os.close(writer)


def start(
    words: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    given: str = "",
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
) -> Process:
    """Start `python WORDS`, with a text to read, and pipes, nothing or descriptors to write to."""
    order = [__name__, str(cwd or Path.cwd()), *words]
    with TemporaryFile() as text, _stream(stdout) as (out, from_out), _stream(stderr) as (err, from_err):
        text.write(given.encode())
        text.seek(0)
        forked = _origin().fork_into((text.fileno(), out, err), order, dict(os.environ if env is None else env))
    return Process(forked, from_out, from_err)


def run(words: Sequence[str], *, timeout_s: float, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS` likewise, and return what it has printed."""
    with start(words, **settings) as process:
        out, err = process.communicate(timeout_s)
    assert process.returncode is not None
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def call(function: Callable[..., object], *args: object, timeout_s: float) -> Any:
    """Return what a function of a module returns there, as `by_reference.call` does for a fresh process."""
    done = run(command(function, *args)[1:], timeout_s=timeout_s)
    assert done.returncode == 0, done.stderr
    return returned(done.stdout)


def _become(folder: str, words: list[str]) -> None:
    """Make of this process, as far as programs see, `python WORDS` in a folder."""
    os.chdir(folder)
    more = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    first = folder if words[0] == "-m" else str(Path(words[0]).resolve().parent)
    sys.path[:] = [first, *more, *(path for path in sys.path if path != ROOT)]
    if words[0] == "-m":
        sys.argv[:] = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = words
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    _become(sys.argv[1], sys.argv[2:])
