"""One rank's process: started in a session of its own, watched, and ended with all that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rankwise.launching import cause, process_stat
from rankwise_launch.config import STDERR, STDOUT, ExitCode, LaunchConfig, LaunchError
from rankwise_launch.output import Console, LineStream
from rankwise_launch.preloading import Forked
from rankwise_launch.sink import LogFile

#: For how long a look at all processes is good enough.
_LOOK_LASTS_S = 0.02


class Worker:
    """The process of one rank.

    Attributes:
        rank: Its global rank.
        local_rank: Its rank on this node.
        exit_code: Its exit code, negative for a signal as `subprocess` has it; None while it runs.
        ended_at: When it ended, by the monotonic clock.
        stopped: Whether the launcher has told it to end.
        streams: Its output, by descriptor of the launcher's end.
    """

    def __init__(self, rank: int, local_rank: int, log_dir: Path | None) -> None:
        self.rank, self.local_rank, self.log_dir = rank, local_rank, log_dir
        self.exit_code: int | None = None
        self.started_at = time.monotonic()
        self.ended_at: float | None = None
        self.stopped = False
        self.streams: dict[int, LineStream] = {}
        self.stderr: LineStream | None = None
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._group_is_there = False

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], pass_fds: Sequence[int], stdin: int | None
    ) -> None:
        """Start the process.

        Raises:
            LaunchError: The system refuses.
        """
        try:
            # A session of its own: its group is exactly what it has started, and reading from the terminal still works.
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=pass_fds,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise LaunchError(ExitCode.NOT_FOUND, f"cannot start {command[0]!r}: {error.strerror}") from error
        except PermissionError as error:
            raise LaunchError(ExitCode.NOT_EXECUTABLE, f"cannot start {command[0]!r}: {error.strerror}") from error
        except OSError as error:
            raise LaunchError(ExitCode.CANNOT_START, f"cannot start rank {self.rank}: {cause(error)}") from error
        self._group_is_there = True

    def use(self, process: Forked) -> None:
        """Take a process that has been forked for it."""
        self._process, self._group_is_there = process, True

    @property
    def process(self) -> subprocess.Popen[bytes] | Forked:
        """The running or ended process."""
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        """The process's id, which is also that of its group."""
        return self.process.pid

    def attach_output(self, config: LaunchConfig, console: Console) -> None:
        """Make a line stream of each of the process's pipes, to the console, to a log file, or to both."""
        for bit, name, pipe in (
            (STDOUT, "stdout", self.process.stdout),
            (STDERR, "stderr", self.process.stderr),
        ):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            teed, redirected = (bool(s.of(self.local_rank) & bit) for s in (config.tee, config.redirects))
            path = self.log_path(name) if teed or redirected else None
            log = None if path is None else LogFile(path, console.say)
            shown = (teed or not redirected) and (config.shown is None or self.local_rank in config.shown)
            stream = LineStream(self.rank, bit, console, shown, log)
            self.streams[pipe.fileno()] = stream
            if bit == STDERR:
                self.stderr = stream

    def log_path(self, name: str) -> Path | None:
        """Return the file that a stream is logged to, if there is a folder for it."""
        return None if self.log_dir is None else self.log_dir / f"{name}.log"

    def read(self, descriptor: int) -> bool:
        """Pass on what has come through a pipe; return whether more may come."""
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return True
        if data:
            self.streams[descriptor].feed(data)
            return True
        self.close_stream(descriptor)
        return False

    def close_stream(self, descriptor: int) -> None:
        """Pass on what is left of a stream and close its pipe."""
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None and not pipe.closed and pipe.fileno() == descriptor:
                pipe.close()
        self.streams.pop(descriptor).close()

    def poll(self) -> bool:
        """Note whether the process has ended; return whether it just has."""
        if self.exit_code is not None:
            return False
        self.exit_code = self._status()
        if self.exit_code is None:
            return False
        self.ended_at = time.monotonic()
        return True

    def _status(self) -> int | None:
        """Return the exit code if the process has ended, without letting go of it."""
        if self.process.returncode is not None:
            return self.process.returncode
        if isinstance(self.process, Forked):
            return self.process.look()
        if not hasattr(os, "waitid"):  # macOS before Python 3.13: nobody can look without letting go
            return self.process.poll()
        end = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if end is None:
            return None
        return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status

    def bury(self) -> None:
        """Let go of a process that has ended; nobody can read how it did any more, before Linux 6.15."""
        self.process.poll()

    def signal(self, number: int) -> None:
        """Tell the process and all of its group to end, by a signal."""
        if self._group_is_there:
            self.stopped = self.stopped or self._status() is None
            self.send(number)

    def send(self, number: int) -> None:
        """Send a signal to the process and all of its group."""
        if self._group_is_there:
            try:
                os.killpg(self.pid, number)
            except (ProcessLookupError, PermissionError):
                self._group_is_there = False

    def group_is_there(self) -> bool:
        """Tell whether the process or anything of its group is still there."""
        # Once it is gone it is asked no more: another process may get the number.
        self._group_is_there = self._group_is_there and _LIVING.has(self.pid, self.ended_at or time.monotonic())
        return self._group_is_there

    def is_gone(self) -> bool:
        """Tell whether it has been let go of, and no process of its group is left."""
        return self.process.returncode is not None and not self.group_is_there()

    @property
    def failed(self) -> bool:
        """Whether it ended by itself, and not well."""
        return self.exit_code not in (None, 0) and not self.stopped

    def describe_end(self, in_words: bool = False) -> str:
        """Say how it ended, perhaps as what follows a subject."""
        assert self.exit_code is not None
        verb = ("was " if self.exit_code < 0 else "has ended with ") * in_words
        if self.exit_code >= 0:
            return f"{verb}exit code {self.exit_code}"
        try:
            return f"{verb}killed by {signal.Signals(-self.exit_code).name} (signal {-self.exit_code})"
        except ValueError:
            return f"{verb}killed by signal {-self.exit_code}"

    def age_s(self) -> float:
        """Return how long it ran."""
        return (self.ended_at or self.started_at) - self.started_at


class _Living:
    """The process groups with a member that is not just waiting for its parent to notice its end.

    To look at all processes takes long where there are many, so one look serves all ranks that have ended before it.
    """

    def __init__(self) -> None:
        self._groups: frozenset[int] | None = None
        self._looked_at = 0.0

    def has(self, group: int, since: float) -> bool:
        """Tell whether a group has such a member, by a look that is later than a moment."""
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):  # the latter is how macOS tells of those that have ended
            return False
        now = time.monotonic()
        if self._looked_at <= since or now > self._looked_at + _LOOK_LASTS_S:
            self._looked_at, self._groups = now, _living_groups()
        return self._groups is None or group in self._groups


_LIVING = _Living()


def _living_groups() -> frozenset[int] | None:
    """Return the groups of all processes that have not ended; None where the system does not tell."""
    found = set()
    for name in os.listdir("/proc") if os.path.exists("/proc/self") else []:
        if name.isdigit():
            stat = process_stat(int(name))
            if len(stat) > 2 and stat[0] not in "ZX":
                found.add(int(stat[2]))
    return frozenset(found) if found else None


def command_line(config: LaunchConfig, local_rank: int) -> list[str]:
    """Return the command that a rank executes."""
    command = program(config, local_rank)
    return command if config.no_python else [sys.executable, *(["-m"] if config.module else []), *command]


def program(config: LaunchConfig, local_rank: int) -> list[str]:
    """Return the script, module or program of a rank, and its arguments."""
    head, *arguments = config.command
    return [head, *([f"--local_rank={local_rank}"] if config.local_rank_argument else []), *arguments]
