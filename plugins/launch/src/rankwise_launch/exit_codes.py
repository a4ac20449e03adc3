"""The exit codes of the launcher's own failures, which it never confuses with those of the program it runs."""

from __future__ import annotations

from enum import IntEnum

from rankwise.errors import DistError

__all__ = ["DESCRIPTIONS", "ExitCode", "LaunchError"]


class ExitCode(IntEnum):
    """Why the launcher itself ended a job, or did not begin one."""

    USAGE = 2
    CANNOT_START = 71
    SECRET = 77
    PORT_IN_USE = 98
    ENDED_EARLY = 104
    NODE_MISSING = 110
    NODE_LOST = 111
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127


DESCRIPTIONS = {
    ExitCode.USAGE: "the command line makes no sense",
    ExitCode.CANNOT_START: "the system refused to start a process",
    ExitCode.SECRET: "several nodes, and no usable job secret",
    ExitCode.PORT_IN_USE: "the master port is taken, or cannot be served on the master address",
    ExitCode.ENDED_EARLY: "a rank ended with exit code 0 while another still needed it",
    ExitCode.NODE_MISSING: "a node did not join in time",
    ExitCode.NODE_LOST: "the launcher of another node is gone",
    ExitCode.NOT_EXECUTABLE: "the program is there but cannot be executed",
    ExitCode.NOT_FOUND: "there is no such script, module or program",
}


class LaunchError(DistError):
    """The launcher could not do what it was asked to.

    Attributes:
        exit_code: What the launcher's process ends with.
    """

    def __init__(self, exit_code: ExitCode, message: str) -> None:
        super().__init__(exit_code, message)
        self.exit_code = exit_code
        self.message = message

    def __str__(self) -> str:
        return self.message
