"""`rankwise top`: what the ranks of a running job do, and who is waited for."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable

from rankwise_launch.toolbox import CommandError, columns_of, use_colour
from rankwise_tools.top.jobs import Job, LocalJob, local_jobs, open_store
from rankwise_tools.top.text import SORTS, Wish, plain
from rankwise_tools.top.view import History, View

DESCRIPTION = """\
Watch a running job: which call each rank is in and since when, calls and bytes a second by operation and way, the share
of time that each rank waits for others, and which rank comes last and by how much. Without an argument the command
finds your jobs on this machine. Given a store's address, it asks a job on any host, with the job's secret
(RANKWISE_SECRET_FILE). It works on any running job, and costs the job time only while it runs."""

EXAMPLES = """\
examples:
  rankwise top
  rankwise top 4711 --sort late
  RANKWISE_SECRET_FILE=job.secret rankwise top tcp://node0:29500
  rankwise top --once
  rankwise top --json --interval 5 >> job.jsonl

keys in the live table: the first letter of an order sorts, g shows one group after the other, t the stragglers only,
j and k show the ranks below and above, space pauses, q ends"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("job", nargs="?", metavar="JOB", help="a process of the job, or tcp://HOST:PORT")
    parser.add_argument("--once", action="store_true", help="show one interval, then exit")
    parser.add_argument("--json", action="store_true", help="print one line of JSON for each update")
    parser.add_argument("--interval", type=float, default=1.0, metavar="S", help="seconds between updates; default 1")
    orders = f"by what ranks are sorted: {', '.join(SORTS)}; default rank"
    parser.add_argument("--sort", choices=SORTS, default="rank", metavar="BY", help=orders)
    parser.add_argument("--group", default="", metavar="NAME", help="show only this group")
    parser.add_argument("--ranks", default="", metavar="LIST", help="show only these ranks, such as 0,3")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    if not options.interval > 0:
        raise CommandError(f"--interval must be more than 0, not {options.interval:g}", 2)
    wish = Wish(options.sort, options.group, _ranks(options.ranks))
    job = find(options.job, options.group)
    try:
        views = _views(job)
        if options.once or options.json or not _is_live():
            _print(views, wish, options)
        else:
            from rankwise_tools.top.live import watch

            watch(views, wish, options.interval)
    except EOFError:
        if options.once:
            raise CommandError("the job ended before it could be looked at") from None
    finally:
        job.close()
    return 0


def find(wanted: str | None, group: str = "") -> Job:
    """Return the job that is wanted, or the only one: the world, or a group outside of it that is called `group`."""
    if wanted is not None and "://" in wanted:
        return open_store(wanted)
    jobs = _worlds(local_jobs(), group)
    if wanted is not None:
        if not wanted.isdigit():
            raise CommandError(f"{wanted!r} is neither a process number nor an address such as tcp://HOST:PORT", 2)
        chosen = [job for job in jobs if int(wanted) in job.processes()] or [
            job for job in jobs if any(int(wanted) in _ancestors(pid) for pid in job.processes())
        ]
        return _only(jobs, chosen[:1], f"no job has a process {wanted}")
    return _only(jobs, jobs, "this user runs no job of more than one rank on this machine")


def _worlds(jobs: list[LocalJob], group: str) -> list[LocalJob]:
    """Leave out groups outside of the world, unless one is meant, or processes have nothing else."""
    found = [job for job in jobs if group and job.outside == group]
    if not found:
        worlds = [job for job in jobs if not job.outside]
        taken = {pid for job in worlds for pid in job.processes()}
        found = [*worlds, *(job for job in jobs if job.outside and not job.processes() & taken)]
    for job in jobs:
        if job not in found:
            job.close()
    return found


def _only(jobs: list[LocalJob], chosen: list[LocalJob], none: str) -> LocalJob:
    for job in jobs:
        if job not in chosen or len(chosen) > 1:
            job.close()
    if not chosen:
        raise CommandError(f"{none}; by its address a job can be looked at from anywhere: rankwise top tcp://HOST:PORT")
    if len(chosen) > 1:
        told = "\n".join(f"  {min(job.processes())}  {job.describe()}" for job in chosen)
        raise CommandError(f"there are {len(chosen)} jobs; give a process of one:\n{told}", 2)
    return chosen[0]


def _ancestors(pid: int) -> set[int]:
    """Return the processes that have started a process, as far as that is known."""
    found: set[int] = set()
    while pid > 1 and pid not in found:
        found.add(pid)
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return found


def _views(job: Job) -> Callable[[], View]:
    """Return what looks once; it raises `EOFError` once the job has ended."""
    history = History()

    def view() -> View:
        samples = job.samples()
        if not samples:
            raise EOFError
        return history.look(samples, job.silent)

    return view


def _print(views: Callable[[], View], wish: Wish, options: argparse.Namespace) -> None:
    views()
    while True:
        time.sleep(options.interval)
        view = views()
        width = columns_of(sys.stdout, 1000)
        print(json.dumps(view.as_json()) if options.json else plain(view, wish, width) + "\n", flush=True)
        if options.once:
            return


def _is_live() -> bool:
    """Tell whether there is a terminal, and what draws in it."""
    if not (use_colour(sys.stdout) and sys.stdin.isatty() and os.name == "posix"):
        return False
    try:
        import rich  # noqa: F401
    except ImportError:
        return False
    return True


def _ranks(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part)
    except ValueError:
        raise CommandError(f"--ranks {text}: expected numbers, such as 0,3", 2) from None
