"""Reading the files that the flight recorders of a job have written. Their content is not trusted."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rankwise_launch.toolbox import meanwhile
from rankwise_watch.reading import DUMP_FORMAT as FORMAT
from rankwise_watch.reading import GROUP_FOLDER

#: No record of a full ring comes near this.
_MAX_NBYTES = 64 << 20
_MOST_RANKS = 1 << 20
#: After so many files one hears how far it has come.
_TELL_EVERY = 16
_STATES = ("done", "failed", "running", "issued")


class TraceError(ValueError):
    """A file is no record, or there is none."""


@dataclass(frozen=True)
class Group:
    """A group as one rank has seen it: numbers of the last collective begun and finished, or -1."""

    name: str
    description: str
    ranks: tuple[int, ...]
    failure: str = ""
    begun: int = -1
    finished: int = -1


@dataclass(frozen=True)
class Operation:
    """One operation of one rank; times by the rank's own clock."""

    group: str
    op: str
    number: int
    nbytes: int
    dtype: str | None
    file: str
    line: int
    function: str
    thread: int
    began_ns: int
    ended_ns: int
    state: str
    message: bool = False
    peer: int | None = None
    tag: int = 0
    error: str = ""
    waited_ns: int = 0
    asked_ns: int = 0

    @property
    def at(self) -> str:
        """The program's call, as short as a reader needs it."""
        return f" at {os.path.basename(self.file)}:{self.line}" if self.file else ""

    @property
    def waits_from_ns(self) -> int:
        """When the program began to wait for a message: at the beginning of a blocking call; 0 if it never did."""
        return self.began_ns if self.op in ("send", "recv") else self.asked_ns

    @property
    def pending(self) -> bool:
        """Whether it had not ended when the record was written."""
        return self.state in ("running", "issued")


@dataclass(frozen=True)
class Record:
    """What one rank has written. `stacks` are the threads' names and "file:line in function" lines."""

    rank: int
    world_size: int
    pid: int
    host: str
    boot: str
    reason: str
    written_ns: int
    clock_offset_ns: int
    groups: Mapping[str, Group]
    operations: Sequence[Operation]
    #: All there are in its world.
    ranks: Sequence[int]
    #: The group that was made outside of the world, whose record this is; "" for the world's.
    outside: str = ""
    stacks: Sequence[tuple[str, tuple[str, ...]]] = field(default=())


def load_all(folder: str) -> list[dict[int, Record]]:
    """Return the records in a folder: those of the world, and of each group that was made outside of it.

    Raises:
        TraceError: There is none, or a file is none; the message names the file.
    """
    paths = [os.path.join(folder, name) for name in sorted(_names(folder)) if name.startswith(GROUP_FOLDER)]
    outside = [load(path) for path in paths if os.path.isdir(path)]
    return outside if outside and not _files(folder) else [load(folder), *outside]


def load(folder: str) -> dict[int, Record]:
    """Return the records of one world in a folder by rank.

    Raises:
        TraceError: There is none, or a file is none; the message names the file.
    """
    found = _files(folder)
    records: dict[int, Record] = {}
    for count, (rank, name) in enumerate(sorted(found.items())):
        if count % _TELL_EVERY == 0:
            meanwhile(f"reading {count} of {len(found)} records" if count else "")
        record = _read(os.path.join(folder, name))
        if record.rank != rank:
            raise TraceError(f"{name} says that it is of rank {record.rank}; a file must not be renamed")
        records[record.rank] = record
    meanwhile()
    if not records:
        raise TraceError(
            f"there is no record (rank0.json and so on) in {folder!r}; run the program with "
            f"RANKWISE_TRACE_DIR={folder} to have each rank write one"
        )
    sizes = {record.world_size for record in records.values()}
    if len(sizes) > 1:
        raise TraceError(
            f"the records in {folder!r} are of different jobs, of {sorted(sizes)} ranks; empty the folder before a run"
        )
    return records


def parse(told: Any) -> Record:
    """Return the record that JSON holds.

    Raises:
        TraceError: It holds none.
    """
    if not isinstance(told, dict) or "rankwise_trace" not in told:
        raise TraceError("it is no record of rankwise")
    if told["rankwise_trace"] != FORMAT:
        raise TraceError(f"it has format {told['rankwise_trace']!r:.20}, but this rankwise reads format {FORMAT}")
    try:
        return _record(told)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise TraceError(f"it is damaged: {type(error).__name__}: {error}") from error


def _files(folder: str) -> dict[int, str]:
    # Others may lie beside them, such as a timeline.
    return {int(m[1]): m[0] for name in _names(folder) if (m := re.fullmatch(r"rank(\d{1,7})\.json", name))}


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError as error:
        raise TraceError(f"the folder {folder!r} cannot be read: {error.strerror}") from error


def _read(path: str) -> Record:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise TraceError("it is no file")
        # opens: files that a command line, or a launcher's variable, names
        # reached by: users who may read their folders
        # guarded by: what is read is text or JSON, and never executed
        # proved by: tests/security/test_default_paths.py
        with open(path, encoding="utf-8") as file:
            text = file.read(_MAX_NBYTES + 1)
        if len(text) > _MAX_NBYTES:
            raise TraceError("it is too long")
        return parse(json.loads(text))
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from error
    except TraceError as error:
        raise TraceError(f"{path} cannot be used: {error}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON
        raise TraceError(f"{path} cannot be used: it is not JSON ({error})") from error


def _record(told: dict[str, Any]) -> Record:
    groups = {_text(name): _group(_text(name), group) for name, group in told["groups"].items()}
    size, outside = _number(told["world_size"]), told.get("outside")
    ranks = range(size) if outside is None else tuple(_number(rank) for rank in outside["ranks"])
    if _number(told["rank"]) not in ranks or len(ranks) != size or size > _MOST_RANKS:
        raise ValueError(f"there is no rank {told['rank']} of {told['world_size']}")
    return Record(
        rank=_number(told["rank"]),
        world_size=size,
        pid=_number(told["pid"]),
        host=_text(told["host"]),
        boot=_text(told["boot"]),
        reason=_text(told["reason"]),
        written_ns=_number(told["written_ns"]),
        clock_offset_ns=_number(told["clock_offset_ns"]),
        groups=groups,
        operations=tuple(_operation(entry, groups) for entry in told["entries"]),
        ranks=ranks,
        outside="" if outside is None else _text(outside["group"]),
        stacks=tuple((_text(thread["name"]), tuple(map(_frame, thread["stack"]))) for thread in told["threads"]),
    )


def _group(name: str, told: dict[str, Any]) -> Group:
    return Group(
        name,
        _text(told["description"]),
        tuple(_number(rank) for rank in told["ranks"]),
        _text(told["failure"]),
        _number(told["begun"]),
        _number(told["finished"]),
    )


def _operation(told: dict[str, Any], groups: Mapping[str, Group]) -> Operation:
    if told["group"] not in groups or told["state"] not in _STATES:
        raise ValueError("an operation is of no group or in no state")
    peer, dtype = told.get("peer"), told["dtype"]
    return Operation(
        group=told["group"],
        op=_text(told["op"]),
        number=_number(told["number"]),
        nbytes=_number(told["nbytes"]),
        dtype=None if dtype is None else _text(dtype),
        file=_text(told["file"]),
        line=_number(told["line"]),
        function=_text(told["function"]),
        thread=_number(told["thread"]),
        began_ns=_number(told["began_ns"]),
        ended_ns=_number(told["ended_ns"]),
        state=told["state"],
        message="tag" in told,
        peer=None if peer is None else _number(peer),
        tag=_number(told.get("tag", 0)),
        error=_text(told.get("error", "")),
        waited_ns=_number(told.get("waited_ns", 0)),
        asked_ns=_number(told.get("asked_ns", 0)),
    )


def _frame(told: dict[str, Any]) -> str:
    return f"{_text(told['file'])}:{_number(told['line'])} in {_text(told['function'])}"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    # What a terminal would take for a command has no place in a report.
    return "".join(c if c.isprintable() else " " for c in value)


def _number(value: Any) -> int:
    if type(value) is not int or abs(value) >= 1 << 63:
        raise TypeError(f"{value!r:.40} is no number")
    return value
