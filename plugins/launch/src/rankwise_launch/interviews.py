"""What each installed backend says of itself, asked in a process of its own: a listing survives any of them.

A plugin is asked in a forked child, whose output goes to a file, and which has a time limit. So one that ends the
process, hangs, prints or crashes is told by its name, and all the others are listed. They are asked side by
side: however many are slow, the listing waits for one. Where processes cannot fork they are asked here, one by one.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from io import StringIO
from typing import IO, Any

from rankwise.launching import (
    KNOWN,
    Availability,
    BackendSpec,
    Capabilities,
    Check,
    PluginFault,
    of_kind,
    one_line,
    registry,
    run_plugin,
    text_of,
    with_article,
)
from rankwise_launch.processes import die_with_parent

#: How long a backend may take to answer; some load a library of a GPU for it.
PATIENCE_S = 20.0
#: What the option of the commands says.
PATIENCE = f"how long a backend may take to answer (default: {PATIENCE_S:g})"
#: What takes longer is worth a word.
SLOW_S = 2.0
_SIDE_BY_SIDE = 16
_MOST_PRINTED = 4000


@dataclass(frozen=True)
class Interview:
    """What one backend has answered.

    Attributes:
        name: Its name.
        provider: The distribution that brings it; "" if none is installed.
        problem: Why it cannot be used at all; "" if it can.
        available: Whether it can run here.
        table: What it can do, if it can be used.
        launch: The command that starts its ranks.
        printed: What it has printed meanwhile.
        took_s: How long it took.
        checks: What it has looked at, if it was asked to.
    """

    name: str
    provider: str = ""
    problem: str = ""
    available: Availability = field(default=Availability(False))
    table: Capabilities | None = None
    launch: tuple[str, ...] = ()
    printed: str = ""
    took_s: float = 0.0
    checks: Sequence[Check] = ()


def interviews(
    patience_s: float = PATIENCE_S, thorough: bool = False, names: Sequence[str] | None = None
) -> list[Interview]:
    """Ask all installed and registered backends, and name those of this project that are missing.

    Args:
        patience_s: How long each may take.
        thorough: Have them look at what they need, too.
        names: Ask only these, and name no others; None for all.
    """
    import pluggy  # noqa: F401 - here, or each child would load it

    providers = registry.providers()
    if names is not None:
        providers = {name: providers.get(name, "") for name in names}
    expected = KNOWN if names is None else ()
    missing = [Interview(name, available=registry.availability(name)) for name in expected if name not in providers]
    asked = _asked_apart(providers, patience_s, thorough) if hasattr(os, "fork") else _asked_here(providers, thorough)
    return sorted([*asked, *missing], key=lambda interview: interview.name)


def plain_answer(name: str) -> tuple[Any, Any] | None:
    """Ask a backend in this process, which it may end: whether it can run, and its table as plain data."""
    found = _ask(name, False)
    return None if "problem" in found else (found["available"], found["table"])


@dataclass
class _Child:
    """A process that asks one backend."""

    name: str
    pid: int
    pipe: int
    output: IO[bytes]
    began: float
    answer: bytes = b""


def _asked_apart(providers: dict[str, str], patience_s: float, thorough: bool) -> Iterator[Interview]:
    waiting = list(providers)
    running: dict[int, _Child] = {}
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or running:
                while waiting and len(running) < _SIDE_BY_SIDE:
                    child = _begin(waiting.pop(0), thorough)
                    running[child.pipe] = child
                    selector.register(child.pipe, selectors.EVENT_READ)
                first = min(child.began for child in running.values())
                ready = selector.select(max(0.0, first + patience_s - time.monotonic()))
                ended = [running[key.fd] for key, _ in ready if _has_ended(running[key.fd])]
                late = [c for c in running.values() if c not in ended and time.monotonic() - c.began >= patience_s]
                for child in (*ended, *late):
                    selector.unregister(child.pipe)
                    del running[child.pipe]
                    yield _heard(child, providers[child.name], patience_s if child in late else 0.0)
        finally:
            for child in running.values():
                _end(child)


def _begin(name: str, thorough: bool) -> _Child:
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    output = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed when the child has ended
    follow = die_with_parent(signal.SIGKILL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of libraries; the child uses none of theirs
        pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            if follow is not None:
                follow()
            os.close(reading)
            _answer_into(writing, name, thorough, output)
        finally:
            os._exit(0)  # without what the program has left to do at its end
    os.close(writing)
    return _Child(name, pid, reading, output, time.monotonic())


def _answer_into(writing: int, name: str, thorough: bool, output: IO[bytes]) -> None:
    """Be the child: say nothing to anybody but the parent."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for theirs, ours in ((nothing, 0), (output.fileno(), 1), (output.fileno(), 2)):
        os.dup2(theirs, ours)
    sys.stdout = open(1, "w", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115 - its own
    sys.stderr = open(2, "w", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    answer = json.dumps(_ask(name, thorough)).encode() + b"\n"
    while answer:
        answer = answer[os.write(writing, answer) :]


def _ask(name: str, thorough: bool) -> dict[str, Any]:
    problem = registry.problem(name)
    if problem is not None:
        return {"problem": str(problem), "remedy": problem.remedy}
    spec, available = registry.get(name), registry.availability(name)
    found = {"available": available, "table": spec.capabilities.to_dict(), "launch": spec.launch}
    return {**found, "checks": _checks(spec)} if thorough else found


def _checks(spec: BackendSpec) -> list[Check]:
    try:
        return run_plugin("its checks failed", lambda: _plain(spec.checks()))
    except PluginFault as fault:
        return [Check(False, str(fault))]


def _plain(answer: Any) -> list[Check]:
    """Return what a backend has looked at, made of plain values."""
    found = []
    for i, each in enumerate(answer):
        of_kind(f"checks()[{i}]", each, Check)
        if each.good is not None and not isinstance(each.good, bool):
            raise PluginFault(f"checks()[{i}].good is {with_article(type(each.good).__name__)}, not a bool or None")
        said, remedy = text_of(f"checks()[{i}].text", each.text), text_of(f"checks()[{i}].remedy", each.remedy)
        found.append(Check(each.good, one_line(said), one_line(remedy)))
    return found


def _has_ended(child: _Child) -> bool:
    part = os.read(child.pipe, 1 << 16)
    child.answer += part
    return not part or part.endswith(b"\n")


def _heard(child: _Child, provider: str, late_s: float) -> Interview:
    took_s = time.monotonic() - child.began
    status = _end(child, 0.0 if late_s or child.answer else 0.5)
    child.output.seek(0)
    printed = one_line(child.output.read(_MOST_PRINTED).decode(errors="replace"))
    child.output.close()
    try:
        found = json.loads(child.answer) if not late_s else {}
        if found:
            return _interview(child.name, provider, found, printed, took_s)
    except (ValueError, TypeError, LookupError, AttributeError):
        pass  # it has written into the pipe itself
    if late_s:
        what = f"it has not answered within {late_s:g} s"
    elif os.WIFSIGNALED(status):
        what = f"it has ended the process that asked it, by {signal.Signals(os.WTERMSIG(status)).name}"
    else:
        what = "it has ended the process that asked it"
    problem = f"backend {child.name!r} of {provider} cannot be used: {what}"
    return Interview(child.name, provider, problem, Availability(False, problem), printed=printed, took_s=took_s)


def _end(child: _Child, patience_s: float = 0.0) -> int:
    """End a child and what it has started, and return how it ended."""
    os.close(child.pipe)
    deadline = time.monotonic() + patience_s
    ended, status = os.waitpid(child.pid, os.WNOHANG)
    while not ended and time.monotonic() < deadline:  # it is ending
        time.sleep(0.002)
        ended, status = os.waitpid(child.pid, os.WNOHANG)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    if not ended:
        os.kill(child.pid, signal.SIGKILL)  # which may not have come to its own group yet
        _, status = os.waitpid(child.pid, 0)
    return status


def _interview(name: str, provider: str, found: dict[str, Any], printed: str, took_s: float) -> Interview:
    if "problem" in found:
        available = Availability(False, found["problem"], found["remedy"])
        return Interview(name, provider, found["problem"], available, printed=printed, took_s=took_s)
    available = Availability(*found["available"])
    table = Capabilities.from_dict(name, found["table"], available)
    checks = [Check(*each) for each in found.get("checks", ())]
    return Interview(name, provider, "", available, table, tuple(found["launch"]), printed, took_s, checks)


def _asked_here(names: dict[str, str], thorough: bool) -> Iterator[Interview]:
    for name, provider in names.items():
        began, said = time.monotonic(), StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            found = json.loads(json.dumps(_ask(name, thorough)))
        yield _interview(name, provider, found, one_line(said.getvalue()), time.monotonic() - began)


def notes(interview: Interview) -> Sequence[str]:
    """Return what a backend did beside answering that its author should know."""
    found = []
    if interview.took_s > SLOW_S and interview.table is not None:
        found.append(f"it took {interview.took_s:.1f} s to answer")
    if interview.printed:
        found.append(f"it printed: {interview.printed}")
    return found
