"""What runs first in a spawned process: it takes its place in the job, and reports how the function fails."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from rankwise.basics.systems import die_with_parent, keep_standard
from rankwise.network import secret

__all__ = ["main", "receive"]

#: Less than a pipe holds, so that a process can end before anyone reads what it says.
_REPORT_NBYTES = 48 * 1024


def main(
    index: int,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    report: Connection,
    environment: Mapping[str, str],
    job_secret: bytes | None,
    die_with_parent: bool,
) -> None:
    """Call `fn(index, *args)`; if it raises, send the traceback and end with exit code 1."""
    keep_standard()
    if die_with_parent:
        _die_with_parent()
    os.environ.update(environment)
    if job_secret is not None:
        os.environ["RANKWISE_SECRET_FD"] = str(secret.hand_down(job_secret))
    with contextlib.suppress(AttributeError, OSError, ValueError):  # there is no standard error to write to
        faulthandler.enable()  # a process that a signal such as SIGSEGV ends says where it was
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        # The parent has got it too, and tells of it.
        sys.exit(130)
    except Exception:
        import traceback

        text = traceback.format_exc().encode("utf-8", "replace")
        report.send_bytes(text[-_REPORT_NBYTES:])
        sys.exit(1)


def receive(report: Connection) -> str | None:
    """Return the traceback that an ended process has sent, if it has."""
    try:
        return report.recv_bytes().decode("utf-8", "replace") if report.poll() else None
    except (EOFError, OSError):
        return None


def _die_with_parent() -> None:
    """Have the kernel end this process when its parent is gone, however it went."""
    follow = die_with_parent(parent=os.getppid())
    parent = multiprocessing.parent_process()
    if follow is not None:
        follow()
    if parent is not None and not parent.is_alive():
        sys.exit(1)
