"""Writing what the flight recorder has noted: one JSON file a rank, on failure, on SIGUSR1 and at the end.

The files go to the folder `RANKWISE_TRACE_DIR`, those of a group outside of the world to one of their own within that,
as its ranks are others. They hold names, sizes, times, errors and places in the program, but no data, no variables and
nothing of the environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import threading
from functools import partial
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

from rankwise.observing import DebugLevel, Entry, Trail, __version__, get_debug_level, signals
from rankwise_watch.recorder import entries, site, states
from rankwise_watch.stacks import stacks

if TYPE_CHECKING:
    import logging

    from rankwise.observing import World

#: The version of the files' format.
FORMAT = 1
#: Names the folder that the files go to.
VARIABLE = "RANKWISE_TRACE_DIR"

#: What the names of the folders begin with that hold the records of groups outside of the world.
GROUP_FOLDER = "group "

_MOST_FRAMES = 64
#: How long the name of such a folder may be.
_MOST_NAME = 200


def install(world: World) -> None:
    """Write this rank's record whenever a group fails, or a signal comes that the program does not want itself.

    SIGUSR1 asks for the record and changes nothing. SIGTERM, by which launchers end a rank after another has failed,
    is only taken where a folder is named: the last word of the slow rank is what explains the failure.
    """
    world.recorder.on_failure = partial(_failed, world)
    for number in signals("SIGUSR1", *(["SIGTERM"] if os.environ.get(VARIABLE) else [])):
        handler = signal.getsignal(number)
        is_main = threading.current_thread() is threading.main_thread()
        if isinstance(handler, _Asked) and handler.ours():
            if is_main or world.home is not None:
                handler.worlds.append(world)
        elif is_main and (handler is signal.SIG_DFL or isinstance(handler, _Asked)):
            signal.signal(number, _Asked(world))


def remove(world: World, reason: str) -> None:
    """Undo `install`, and write the last record if a folder is named. A second call does nothing."""
    if world.recorder.on_failure is None:
        return
    world.recorder.on_failure = None
    for number in signals("SIGUSR1", "SIGTERM"):
        handler = signal.getsignal(number)
        if isinstance(handler, _Asked) and world in handler.worlds:
            handler.worlds.remove(world)
            if not handler.worlds and threading.current_thread() is threading.main_thread():
                signal.signal(number, signal.SIG_DFL)
    if os.environ.get(VARIABLE):
        write(world, reason)


def write(world: World, reason: str) -> str | None:
    """Write a rank's record, and return its path; None if that cannot be done, which is logged."""
    try:
        folder = os.path.join(os.environ.get(VARIABLE) or _own_folder(), *_subfolder(world))
        os.makedirs(folder, exist_ok=True)
        told = record(world, reason)
        path = os.path.join(folder, f"rank{told['rank']}.json")
        # A process that reads meanwhile, or writes too, must find a whole file.
        # opens: the records of the flight recorder, where `RANKWISE_TRACE_DIR` or the program asks for them
        # reached by: users who may read the folder
        # guarded by: mode 0600; a whole file replaces the one before
        # proved by: tests/plugins/watch/test_recorder.py
        import tempfile

        descriptor, half = tempfile.mkstemp(prefix=".rank", dir=folder)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(told, file, separators=(",", ":"))
            os.replace(half, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(half)
            raise
    except OSError as error:
        _log().warning("the record of this rank's operations cannot be written: %s", error)
        return None
    return path


def record(world: World, reason: str) -> dict[str, Any]:
    """Return all that is known about what this rank has called, as plain data."""
    noted = entries(world.recorder)
    trails = {id(trail): trail for trail in [*world.recorder.trails(), *(entry.trail for entry in noted)]}
    # The last of each group counts even if others have pushed it out of the ring.
    marks = [entry for trail in trails.values() for entry in trail.marks() if entry is not None]
    noted = list({(id(entry.trail), entry.detail is None, entry.number): entry for entry in [*marks, *noted]}.values())
    noted.sort(key=lambda entry: entry.began_ns)
    default = world.default
    return {
        "rankwise_trace": FORMAT,
        "version": __version__,
        "rank": -1 if default is None else default.global_rank,
        "world_size": 0 if default is None else default.size(),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "boot": _boot(),
        "reason": reason,
        "written_ns": monotonic_ns(),
        "clock_offset_ns": time_ns() - monotonic_ns(),
        "groups": {trail.name: _group(trail) for trail in trails.values()},
        "entries": _operations(noted),
        "threads": _threads(),
        **_outside(world),
    }


class _Asked:
    """The handler of the two signals."""

    #: So it is called at any place, also where other handlers are held back.
    raises_nothing = True

    def __init__(self, world: World) -> None:
        #: Whose records are written: worlds that end meanwhile take themselves out.
        self.worlds = [world]
        self._pid = os.getpid()

    def ours(self) -> bool:
        """Tell whether this is still the process whose record it is, and not a forked child."""
        return os.getpid() == self._pid

    def __call__(self, number: int, frame: Any) -> None:
        for world in list(self.worlds) if self.ours() else []:
            path = write(world, signal.Signals(number).name)
            if path is not None and not os.environ.get(VARIABLE):
                # Not through sys.stderr, which the program may be writing to this moment.
                os.write(2, f"rankwise: the operations of this rank are in {path}\n".encode())
        if not self.ours() or number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def _failed(world: World, trail: Trail) -> None:
    """Write the record of a rank whose group has failed. Whatever goes wrong here must not hide that."""
    named = bool(os.environ.get(VARIABLE))
    try:
        if not named and get_debug_level() == DebugLevel.OFF:
            return
        path = write(world, f"group {trail.description!r} failed: {trail.failure}")
    except Exception as error:
        _log().warning("the record of this rank's operations cannot be written: %r", error)
        return
    if path is not None and not named:
        _log().error(
            "group %r failed: %s. The operations of this rank are in %s", trail.description, trail.failure, path
        )


def _log() -> logging.Logger:
    import logging  # only now: where all goes well, nothing is logged

    return logging.getLogger("rankwise")


def _outside(world: World) -> dict[str, Any]:
    """Return what a record says of a group that was made outside of the world."""
    if world.home is None or world.default is None:
        return {}
    return {"outside": {"group": world.default.name, "ranks": list(world.default.ranks)}}


def _subfolder(world: World) -> tuple[str, ...]:
    """Return where in the folder a world's records lie: apart for a group outside of the world, by its name."""
    if world.home is None or world.default is None:
        return ()
    from urllib.parse import quote

    return (GROUP_FOLDER + quote(world.default.name, safe="")[:_MOST_NAME],)


def _own_folder() -> str:
    """Return a folder for the ranks with one parent process, which nobody else on this machine can have prepared."""
    if not hasattr(os, "getuid"):
        raise OSError(f"this system has no folder of this user alone; set {VARIABLE}")
    import tempfile

    top = os.path.join(tempfile.gettempdir(), f"rankwise-trace-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(top, 0o700)
    found = os.lstat(top)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise OSError(f"{top} is not a folder of this user alone; set {VARIABLE}")
    return os.path.join(top, str(os.getppid()))


def _group(trail: Trail) -> dict[str, Any]:
    begun, ended, _, _ = (None if entry is None else entry.number for entry in trail.marks())
    return {
        "description": trail.description,
        "ranks": list(trail.ranks),
        "failure": trail.failure,
        "begun": -1 if begun is None else begun,
        "finished": -1 if ended is None else ended,
    }


def _operations(noted: list[Entry]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    later: dict[int, int] = {}
    for entry, state in reversed(list(zip(noted, states(noted), strict=True))):
        told.append(_entry(entry, state))
        if state == "failed" and not entry.ended_ns:
            # Nobody has noted when: no later than the group's end, and before its thread has begun anything else.
            bounds = (entry.trail.failed_ns, later.get(entry.thread, 0))
            told[-1]["ended_ns"] = min((ns for ns in bounds if ns > entry.began_ns), default=0)
        later[entry.thread] = entry.began_ns
    return told[::-1]


def _entry(entry: Entry, state: str) -> dict[str, Any]:
    file, line, function = site(entry)
    told = {
        "group": entry.trail.name,
        "op": entry.op,
        "number": entry.number,
        "nbytes": entry.nbytes,
        "dtype": None if entry.dtype is None else str(entry.dtype),
        "file": file,
        "line": line,
        "function": function,
        "thread": entry.thread,
        "began_ns": entry.began_ns,
        "ended_ns": entry.ended_ns,
        "state": state,
    }
    if entry.detail is not None:
        told["peer"], told["tag"] = entry.detail
    if entry.error:
        told["error"] = entry.error
    if entry.waited_ns:
        told["waited_ns"] = entry.waited_ns
    if entry.asked_ns:
        told["asked_ns"] = entry.asked_ns
    return told


def _threads() -> list[dict[str, Any]]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return [
        {
            "thread": ident,
            "name": names.get(ident, "?"),
            "stack": [place._asdict() for place in stack[:_MOST_FRAMES]],
        }
        for ident, stack in stacks().items()
    ]


def _boot() -> str:
    """Return what tells this machine's clock from all others; "" where the kernel does not say."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    return ""
