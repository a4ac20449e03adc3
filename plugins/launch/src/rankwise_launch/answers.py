"""What backends of others can do, for a program's question about all: none of them is imported into the program.

They are asked in processes of their own, by one that asks them all. What they have answered is kept for a while, in
memory and in the user's cache directory, by the distribution and version that bring them; so a question costs little
in the next program too. A program that names a backend asks the backend itself.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankwise.backends import Device
from rankwise.launching import Availability, Capabilities, Cell, __version__, cell_of

#: How long each of them may take, side by side.
PATIENCE_S = 5.0
#: How long an answer is kept; a "no" may be about what can be changed, such as a driver.
_HOLDS_S, _NO_HOLDS_S = 3600.0, 60.0
#: How long one may keep the others waiting while all are asked in turn, and how long Python may take to begin.
_STALL_S, _BEGINNING_S = 0.5, 10.0
#: How long beyond their patience they may take together, and how much of a file of answers is read.
_LEEWAY_S, _MOST_NBYTES = 30.0, 1 << 26

_PROGRAM = (
    "import json, sys; order = json.load(sys.stdin); sys.path[:] = order['path']\n"
    "from rankwise_launch.answers import answer; answer(order)"
)


@dataclass
class _Answer:
    """What one backend has answered.

    Attributes:
        owner: The distribution and version that bring it.
        asked: When it was asked.
        table: What it can do, and whether it can run here; None if it cannot be used.
        plain: The table as plain data, where it has come as such.
    """

    owner: str
    asked: float
    table: Capabilities | None
    plain: Mapping[str, Any] | None = None

    def holds(self, owner: str) -> bool:
        """Tell whether it is still an answer, now that `owner` brings the backend."""
        age_s = time.time() - self.asked
        is_yes = self.table is not None and bool(self.table.here())
        return self.owner == owner and 0 <= age_s < (_HOLDS_S if is_yes else _NO_HOLDS_S)


#: A table, and the plain data that it was made of.
_Found = tuple[Capabilities, dict[str, Any]]
#: What this process knows of each backend.
_known: dict[str, _Answer] = {}


def tables(owners: Mapping[str, str]) -> list[Capabilities]:
    """Return the table of each backend that can be used, whether or not it can run here.

    Args:
        owners: The names of the backends, and what brings each.
    """
    if not _all_hold(owners):
        _known.update(_kept())
    unasked = {name: owner for name, owner in owners.items() if name not in _known or not _known[name].holds(owner)}
    if unasked:
        _known.update(_asked(unasked))
        _keep(_known)
    return [table for name in owners if (table := _known[name].table) is not None]


def _all_hold(owners: Mapping[str, str]) -> bool:
    return all(name in _known and _known[name].holds(owner) for name, owner in owners.items())


def _asked(owners: Mapping[str, str]) -> dict[str, _Answer]:
    """Have other processes ask these backends: one asks all in turn; those that it has not come to are asked apart."""
    said = _heard("ask_in_turn", list(owners), _STALL_S)
    if rest := [name for name in owners if name not in said]:
        said |= _heard("ask_apart", rest, PATIENCE_S + _LEEWAY_S)
    now = time.time()
    return {name: _Answer(owner, now, *said.get(name) or (None,)) for name, owner in owners.items()}


def _heard(function: str, names: Sequence[str], patience_s: float) -> dict[str, _Found | None]:
    """Return what another process has found out about backends, until it has ended or kept us waiting.

    Args:
        function: Which of the functions below it calls.
        names: The backends.
        patience_s: How long a line may take; the first comes when the interpreter has begun, too.
    """
    order = json.dumps({"path": sys.path, "names": names, "function": function}).encode()
    said: dict[str, _Found | None] = {}
    with (
        suppress(OSError, ValueError, TypeError, LookupError),
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as asker,
    ):
        try:
            for name, found in _lines(asker, order, len(names), patience_s):
                said[name] = found and (Capabilities.from_dict(name, found[1], Availability(*found[0])), found[1])
        finally:
            with suppress(OSError):
                os.killpg(asker.pid, signal.SIGKILL)
    return said


def _lines(asker: subprocess.Popen[bytes], order: bytes, count: int, patience_s: float) -> Iterator[tuple[str, Any]]:
    assert asker.stdin is not None
    assert asker.stdout is not None
    asker.stdin.write(order)
    asker.stdin.close()
    rest, wait_s = b"", patience_s + _BEGINNING_S
    with selectors.DefaultSelector() as selector:
        selector.register(asker.stdout, selectors.EVENT_READ)
        while count and selector.select(wait_s) and (part := os.read(asker.stdout.fileno(), 1 << 16)):
            *lines, rest = (rest + part).split(b"\n")
            count, wait_s = count - len(lines), patience_s if lines else wait_s
            yield from (json.loads(line) for line in lines)


# What the process calls that asks


def ask_in_turn(names: Sequence[str], say: Callable[[str, object], None]) -> None:
    """Ask one after the other in this process, which ends with the first that ends it."""
    from rankwise_launch.interviews import plain_answer

    for name in names:
        say(name, plain_answer(name))


def ask_apart(names: Sequence[str], say: Callable[[str, object], None]) -> None:
    """Ask each in a process of its own, side by side."""
    from rankwise_launch.interviews import interviews

    for each in interviews(PATIENCE_S, names=names):
        say(each.name, None if each.table is None else (each.available, each.table.to_dict()))


def answer(order: Mapping[str, Any]) -> None:
    """Be the process that asks: only what it finds out goes to the program, whatever a plugin prints."""
    # opens: nothing, it is standard output once more
    told = open(os.dup(1), "w", encoding="utf-8")  # noqa: SIM115 - for as long as the process is there
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    {"ask_in_turn": ask_in_turn, "ask_apart": ask_apart}[order["function"]](
        order["names"], lambda name, found: print(json.dumps([name, found]), file=told, flush=True)
    )


# In the user's cache directory: plain data, which is read only if nobody but this user can have written it
#
# Many cells are alike, in one table and in several: each is written once, and so is what the cells of a table are of.


def _place() -> Path | None:
    """Return where answers are kept on this machine, for this Python; None where nothing can be."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "rankwise"
        folder.mkdir(0o700, parents=True, exist_ok=True)
        status = os.lstat(folder)
    except (OSError, RuntimeError):
        return None
    if not stat.S_ISDIR(status.st_mode) or not _is_ours_alone(status):
        return None
    words = (__version__, sys.version, sys.prefix, socket.gethostname())
    return folder / f"answers-{zlib.crc32(repr(words).encode()):08x}.json"


def _is_ours_alone(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _kept() -> dict[str, _Answer]:
    """Return what other programs have been answered; nothing if it cannot be trusted."""
    if (place := _place()) is None:
        return {}
    try:
        # opens: what backends have answered, kept in the user's cache for the next program
        with open(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or not _is_ours_alone(status) or status.st_size > _MOST_NBYTES:
                return {}
            found = json.load(file)
        cells = [cell_of(cell) for cell in found["cells"]]
        return {name: _read(name, found["headings"], cells, *told) for name, told in found["answers"].items()}
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return {}


def _read(
    name: str,
    headings: Sequence[Sequence[str]],
    cells: Sequence[Cell],
    owner: str,
    asked: float,
    here: Sequence[Any],
    groups: Sequence[Sequence[int]],
    devices: Mapping[str, Sequence[Sequence[int]]],
) -> _Answer:
    if not devices:
        return _Answer(str(owner), float(asked), None)
    read = {
        device: Device(*[dict(zip(headings[of], [cells[n] for n in row], strict=True)) for of, *row in rows])
        for device, rows in devices.items()
    }
    sizes, hosts = (range(*numbers) for numbers in groups)
    available = Availability(*here)
    return _Answer(str(owner), float(asked), Capabilities(name, read, sizes, hosts, lambda: available))


def _keep(answers: Mapping[str, _Answer]) -> None:
    """Keep answers for other programs; of several that do so at the same time the last one is heard."""
    if (place := _place()) is None:
        return
    headings: dict[str, int] = {}
    cells: dict[str, int] = {}
    told = {name: _written(answer, headings, cells) for name, answer in answers.items()}
    lists = f'"headings": [{", ".join(headings)}], "cells": [{", ".join(cells)}]'
    text = f'{{{lists}, "answers": {json.dumps(told, separators=(",", ":"))}}}'
    with suppress(OSError):
        # opens: what backends have answered, kept in the user's cache for the next program
        # reached by: users who may read the folder
        # guarded by: mode 0600; refused if another user owns it or may write it, if it is a link, or too long
        # proved by: tests/core/test_asked_and_called.py
        handle, path = tempfile.mkstemp(dir=place.parent)  # for this user alone
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(path, place)
        except BaseException:
            os.unlink(path)
            raise


def _written(answer: _Answer, headings: dict[str, int], cells: dict[str, int]) -> tuple[Any, ...]:
    """Return an answer as plain data, with the numbers of headings and cells; those that are new get the next ones."""
    if answer.table is None:
        return answer.owner, answer.asked, (), (), {}
    devices, groups = {}, []
    for device, plain in (answer.plain or answer.table.to_dict()).items():
        groups = [plain[name] for name in ("sizes", "hosts")]
        devices[device] = [
            [_number(headings, list(plain[kind])), *[_number(cells, cell) for cell in plain[kind].values()]]
            for kind in ("ops", "features")
        ]
    return answer.owner, answer.asked, answer.table.here(), groups, devices


def _number(numbers: dict[str, int], plain: Any) -> int:
    return numbers.setdefault(json.dumps(plain), len(numbers))
