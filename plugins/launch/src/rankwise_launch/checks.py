"""What `rankwise doctor` looks at. Each check yields findings and never raises."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from rankwise.errors import DistError
from rankwise.launching import KNOWN, native
from rankwise_launch import libraries, memory
from rankwise_launch.interviews import PATIENCE_S, Interview, interviews, notes
from rankwise_launch.processes import cores, require_folder
from rankwise_launch.proofs import proofs
from rankwise_launch.text import meanwhile


class Level(str, Enum):
    """How good or bad a finding is; only `BAD` makes the machine unhealthy."""

    GOOD = "good"
    NOTE = "note"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True)
class Finding:
    """One thing that was found."""

    section: str
    level: Level
    text: str
    remedy: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return it as plain data."""
        return {"section": self.section, "level": self.level.value, "text": self.text, "remedy": self.remedy}


#: How good what a backend has looked at is.
_LEVELS = {True: Level.GOOD, None: Level.NOTE, False: Level.BAD}


def all_checks(quick: bool, patience_s: float = PATIENCE_S) -> Iterator[Finding]:
    """Run all checks, one after the other; `quick` leaves out those that start processes that communicate."""
    yield from _versions()
    yield from _native()
    meanwhile("  ..  asking each backend in a process of its own")
    asked = interviews(patience_s, thorough=True)
    yield from _backends(asked)
    for check in (_libraries, _network, _job, _memory):
        yield from check()
    if not quick:
        yield from _proofs(asked)


def _versions() -> Iterator[Finding]:
    section = "versions"
    python = f"Python {platform.python_version()} ({sys.executable}) on {platform.system()} {platform.release()}"
    yield Finding(section, Level.GOOD, f"{python}, {platform.machine()}, {cores()} cores")
    for name, required in (("rankwise", True), ("numpy", True), ("pluggy", True), ("pyzmq", True), ("msgpack", True)):
        version = libraries.version(name)
        if version is not None:
            yield Finding(section, Level.GOOD, f"{name} {version}")
        elif name == "rankwise":
            from rankwise.launching import __version__

            yield Finding(section, Level.NOTE, f"rankwise {__version__}, from a source tree that is not installed")
        elif required:
            yield Finding(section, Level.BAD, f"{name} is not installed", f"pip install {name}")


def _native() -> Iterator[Finding]:
    try:
        in_use, text = native.state()
    except ValueError as error:
        yield Finding("compiled parts", Level.BAD, str(error), f"unset {native.VARIABLE}")
        return
    if in_use:
        yield Finding("compiled parts", Level.GOOD, f"{text}, in use")
        return
    gain = "with them small collectives on one machine take a tenth of the time"
    yield Finding("compiled parts", Level.NOTE, f"{text}; {gain}", native.remedy())


def _backends(asked: list[Interview]) -> Iterator[Finding]:
    for interview in asked:
        yield _backend(interview)
        for note in notes(interview):
            yield Finding("backends", Level.WARN, f"{interview.name}: {interview.provider}: {note}")
        for good, text, remedy in interview.checks:
            yield Finding("backends", _LEVELS[good], f"{interview.name}: {text}", remedy)
    if not any(interview.provider for interview in asked):
        yield Finding("backends", Level.BAD, "no backend is installed", f"pip install {KNOWN['gloo']}")


def _backend(interview: Interview) -> Finding:
    name, provider, answer = interview.name, interview.provider, interview.available
    if not provider:
        return Finding("backends", Level.NOTE, f"{name}: not installed", f"pip install {KNOWN[name]}, if you need it")
    if interview.table is None:
        # The message tells the distribution, its version, and whether it is broken, clashing or of another API version.
        return Finding("backends", Level.BAD, f"{name}: {interview.problem}", answer.remedy)
    if not answer:
        return Finding("backends", Level.WARN, f"{name}: {provider}, cannot run here: {answer.reason}", answer.remedy)
    devices = ", ".join(interview.table.usable_devices()) or "no device"
    return Finding("backends", Level.GOOD, f"{name}: {provider}, ready for {devices}")


def _libraries() -> Iterator[Finding]:
    for good, text, remedy in (*libraries.mpi(), *libraries.nccl()):
        yield Finding("libraries", {True: Level.GOOD, False: Level.BAD, None: Level.NOTE}[good], text, remedy)


def _network() -> Iterator[Finding]:
    from rankwise_network import secret
    from rankwise_network.interface import interface_of, local_address

    master = os.environ.get("MASTER_ADDR")
    named = next((n for n in ("RANKWISE_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") if os.environ.get(n)), None)
    toward = master or "192.0.2.1"
    route = f"the route to {f'MASTER_ADDR={master}' if master else 'other hosts'}"
    why = f"{named}={os.environ[named]}" if named else route
    try:
        address = local_address(toward)
        where = f"{address} on interface {interface_of(address) or 'unknown'}"
        yield Finding("network", Level.GOOD, f"this machine's address is {where}, by {why}")
    except (DistError, ValueError, OSError) as error:
        level = Level.BAD if named or master else Level.NOTE
        yield Finding("network", level, f"only this machine can be reached: {error}")
    try:
        known = secret.load()
    except ValueError as error:
        yield Finding("network", Level.BAD, f"the job secret cannot be used: {error}")
    else:
        text = "a job secret is set" if known else "no job secret is set, so that only loopback would be served"
        yield Finding("network", Level.GOOD if known else Level.NOTE, text, "" if known else secret.ADVICE)


def _job() -> Iterator[Finding]:
    """Tell what a launcher or a queueing system has told this process, as a program would take it."""
    from rankwise_network import launcher_env

    told = launcher_env.told_of_a_job()
    if not told:
        return
    if os.environ.get("SLURM_JOB_ID"):
        yield Finding("job", Level.GOOD, _slurm_job(os.environ))
    try:
        place = launcher_env.from_environment()
    except ValueError as error:
        yield Finding("job", Level.NOTE, f"a program started as this one is would find no others: {error}")
    else:
        where = f"meets the others at {place.master_addr}:{place.master_port}" if place.world_size > 1 else "is alone"
        yield Finding("job", Level.GOOD, f"this is rank {place.rank} of {place.world_size}, and {where}")


def _slurm_job(env: Mapping[str, str]) -> str:
    """Return a sentence on the job: its nodes, and whether this process belongs to a step of it."""
    from rankwise_network.slurm import is_batch_script

    listed = env.get("SLURM_JOB_NODELIST", "")
    what = "its batch script" if is_batch_script(env) and env.get("SLURM_PROCID") else "no step of it"
    if not is_batch_script(env):
        what = f"task {env.get('SLURM_PROCID', '?')} of its step {env.get('SLURM_STEP_ID', '?')}"
    nodes = f"{env.get('SLURM_JOB_NUM_NODES') or 'some'} nodes{listed and f' ({listed})'}"
    return f"Slurm's job {env.get('SLURM_JOB_ID')} has {nodes}; this process is {what}"


def _memory() -> Iterator[Finding]:
    for good, text, remedy in (memory.segments(), memory.direct_reads(), memory.shm_folder()):
        yield Finding("shared memory", Level.GOOD if good else Level.WARN, text, remedy)


def _proofs(asked: list[Interview]) -> Iterator[Finding]:
    try:
        require_folder()
    except DistError as error:
        yield Finding("proof", Level.BAD, str(error))
        return
    for good, text in proofs(asked):
        yield Finding("proof", {True: Level.GOOD, False: Level.BAD, None: Level.NOTE}[good], text)
