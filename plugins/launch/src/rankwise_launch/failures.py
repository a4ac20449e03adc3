"""Which rank is to blame for a failed job, and how that is told."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankwise_launch.config import ExitCode
from rankwise_launch.worker import Worker

_WIDTH = 80
_TRACEBACK = re.compile(r"^(?:\[rank\s*\d+\]:\s?)?(?:Traceback \(most recent call last\):|Fatal Python error: )")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
#: Errors by which a rank tells that another one has failed.
_CONSEQUENCE = re.compile(r"^(?:\[rank\s*\d+\]:\s?)?(?:[\w.]+\.)?(?:Peer(?:Died|Unreachable)Error|GroupAbortedError)\b")
#: Those, and the time-outs that name a rank that did not come.
_NEEDY = re.compile(_CONSEQUENCE.pattern.replace("GroupAbortedError", "GroupAbortedError|DistTimeoutError"))
_LINES_WITHOUT_TRACEBACK = 20
_SUMMARY_LENGTH = 8000
_MOST_DEATHS = 8


def culprit(workers: Sequence[Worker]) -> Worker | None:
    """Return the rank that failed first; one that fell over because another was gone only if there is no other."""
    failed = sorted((w for w in workers if w.failed), key=lambda w: w.ended_at or 0.0)
    return next((w for w in failed if not is_consequence(w)), failed[0] if failed else None)


def is_consequence(worker: Worker) -> bool:
    """Tell whether a rank's last error says that another rank had failed before."""
    return any(_CONSEQUENCE.match(line) for line in excerpt(_tail(worker)))


def ended_early(failed: Worker, workers: Sequence[Worker]) -> Worker | None:
    """Return the rank that ended with exit code 0 while the failed one still needed it, as the latter's error tells."""
    said = " ".join(line for line in excerpt(_tail(failed)) if _NEEDY.match(line))
    gone = [w for w in workers if w.exit_code == 0 and not w.stopped]
    return next((w for w in gone if re.search(rf"\brank {w.rank}\b", said)), None)


def exit_code(failed: Worker, workers: Sequence[Worker]) -> int:
    """Return the exit code of a job in which this rank failed first."""
    return ExitCode.ENDED_EARLY if ended_early(failed, workers) else shell_exit_code(failed.exit_code or 0)


def excerpt(lines: Sequence[str]) -> list[str]:
    """Return the last traceback in the lines, with those that it is chained to; or else the last lines.

    The stacks that Python writes when a signal such as SIGSEGV ends it are one too.
    """
    starts = [i for i, line in enumerate(lines) if _TRACEBACK.match(line)]
    if not starts:
        return list(lines[-_LINES_WITHOUT_TRACEBACK:])
    start = starts.pop()
    while starts and any(mark in line for line in lines[max(start - 3, 0) : start] for mark in _CHAINED):
        start = starts.pop()
    return list(lines[start:])


def report(worker: Worker, workers: Sequence[Worker], out_of_memory: bool) -> str:
    """Tell of a failure: who, how, what the others did, and at the very end what the rank printed last."""
    lines = [
        "",
        "=" * _WIDTH,
        *_heads(worker, workers),
        f"  {_where(worker)}",
        *(f"  {line}" for line in _remarks(worker, workers)),
    ]
    if out_of_memory:
        lines.append("  the kernel has killed for lack of memory meanwhile: use fewer ranks, or smaller arrays")
    words = excerpt(_tail(worker))
    lines += ["-" * _WIDTH, *(words or ["(it has written nothing to its standard error)"]), "=" * _WIDTH]
    return "\n".join(lines)


def summary(worker: Worker, workers: Sequence[Worker]) -> str:
    """Tell of a failure in a few lines, for the launchers of other nodes."""
    lines = [*_heads(worker, workers), f"  {_where(worker)}", *excerpt(_tail(worker))]
    return "\n".join(lines)[:_SUMMARY_LENGTH]


def shell_exit_code(exit_code: int) -> int:
    """Return the exit code by which a shell would tell of a process's end: 128 and the signal for a signal."""
    return exit_code if exit_code >= 0 else 128 - exit_code


@dataclass
class Death:
    """The failure of a rank that has not ended the others.

    Attributes:
        rank: The rank.
        how: How it ended.
        replaced: Whether it was started again.
    """

    rank: int
    how: str
    replaced: bool = False


def told_deaths(deaths: Sequence[Death]) -> str:
    """Tell in a few lines which ranks have failed without ending the job."""
    count = f"{len(deaths)} failures" if len(deaths) > 1 else "1 failure"
    lines = [f"rankwise: {count} did not end the other ranks:"]
    for death in deaths[:_MOST_DEATHS]:
        lines.append(f"  rank {death.rank}: {death.how}; {'started again' if death.replaced else 'not started again'}")
    if len(deaths) > _MOST_DEATHS:
        lines.append(f"  and {len(deaths) - _MOST_DEATHS} more")
    return "\n".join(lines)


class OutOfMemoryWatch:
    """Notices that the kernel has killed for lack of memory in this container, where that can be seen."""

    _FILES = ("/sys/fs/cgroup/memory.events", "/proc/vmstat")

    def __init__(self) -> None:
        self._before = self._count()

    def struck(self) -> bool:
        """Tell whether it has happened since this object was made."""
        now = self._count()
        return now is not None and self._before is not None and now > self._before

    def _count(self) -> int | None:
        for path in self._FILES:
            try:
                match = re.search(r"^oom_kill (\d+)", Path(path).read_text(), re.MULTILINE)
            except OSError:
                continue
            if match:
                return int(match[1])
        return None


def _heads(worker: Worker, workers: Sequence[Worker]) -> list[str]:
    early = ended_early(worker, workers)
    heads = [f"rank {worker.rank} failed first: {worker.describe_end()}, {worker.age_s():.1f} s after its start"]
    if early is not None:
        age_s = f"{early.age_s():.1f} s after its start"
        heads.insert(0, f"rank {early.rank} ended too early: with exit code 0, {age_s}, while others needed it")
    return heads


def _tail(worker: Worker) -> list[str]:
    if worker.stderr is None:
        return []
    return [line.decode("utf-8", "replace").rstrip("\r") for line in worker.stderr.tail]


def _where(worker: Worker) -> str:
    text = f"host {socket.gethostname()}, pid {worker.pid}, local rank {worker.local_rank}"
    return text if worker.log_dir is None else f"{text}, logs in {worker.log_dir}"


def _remarks(worker: Worker, workers: Sequence[Worker]) -> list[str]:
    others = [w for w in workers if w is not worker]
    failed = [w for w in others if w.failed]
    remarks = [f"rank {w.rank} failed too: {w.describe_end()}" for w in failed[:8]]
    if len(failed) > 8:
        remarks.append(f"and {len(failed) - 8} more ranks")
    gone = [w for w in others if w.exit_code == 0 and not w.stopped]
    if gone:
        remarks.append(f"{named(gone)} had ended with exit code 0, and took no further part")
    stopped = [w for w in others if w.stopped]
    if stopped:
        remarks.append(f"{named(stopped)} {'was' if len(stopped) == 1 else 'were'} stopped because of it")
    return remarks


def named(workers: Sequence[Worker]) -> str:
    """Name some ranks."""
    numbers = sorted(w.rank for w in workers)
    shown = ", ".join(map(str, numbers[:16])) + (", ..." if len(numbers) > 16 else "")
    return f"rank {shown}" if len(numbers) == 1 else f"ranks {shown}"
