"""One process of the harness: `python -m rankwise_testing.worker DIRECTORY`.

It connects to the socket in the directory, runs what it is told on its main thread, and ends with its parent: a second
thread listens all the while, so that neither a blocked call nor the parent's sudden end leaves it behind.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import shutil
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from multiprocessing.connection import Client, Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from rankwise.errors import DistError
from rankwise.kits import World, current, leave_everything
from rankwise_network.launcher_env import from_environment
from rankwise_testing.messages import STACKS_SIGNAL, Outcome, Setup, Task, failed, succeeded

_worlds: list[weakref.ref[World]] = []
_at_end: list[Callable[[], object]] = []


def watch_world(world: World) -> None:
    """Let the harness stop `world` when another rank has failed."""
    _worlds[:] = [other for other in _worlds if other() is not None and other() is not world] + [weakref.ref(world)]


def before_exit(callback: Callable[[], object]) -> None:
    """Call `callback()` when the process is told to end."""
    _at_end.append(callback)


def main() -> None:
    """Serve one harness until it says to end, or is gone."""
    directory = Path(sys.argv[1])
    faulthandler.enable()
    with open(directory / f"stacks-{os.getpid()}", "w", encoding="utf-8") as stacks:
        assert STACKS_SIGNAL is not None  # wherever such processes can be started
        faulthandler.register(STACKS_SIGNAL, stacks, all_threads=True)
        with Client(str(directory / "socket"), "AF_UNIX", authkey=(directory / "key").read_bytes()) as connection:
            connection.send((from_environment().rank, os.getpid()))
            _prepare(connection.recv())
            _serve(connection, directory)
        faulthandler.unregister(STACKS_SIGNAL)


def _prepare(setup: Setup) -> None:
    sys.path[:] = setup.sys_path
    if setup.python_path is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = setup.python_path
    os.environ.update(setup.environ)


def _serve(connection: Connection[Any, Any], directory: Path) -> None:
    watch_world(current())
    tasks: SimpleQueue[Task | None] = SimpleQueue()
    args = connection, tasks, directory
    threading.Thread(target=_listen, args=args, name="rankwise harness", daemon=True).start()
    while (task := tasks.get()) is not None:
        connection.send(_run(task))
    for callback in reversed(_at_end):
        callback()


def _listen(connection: Connection[Any, Any], tasks: SimpleQueue[Task | None], directory: Path) -> None:
    """Pass tasks on to the main thread, and do immediately what must not wait for it."""
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            _vanish(directory)
        if isinstance(message, str):
            _abort(message)
        else:
            for world in _living():
                world.stopped = None  # what has failed was an earlier task
            tasks.put(message)
            if message is None:
                return


def _run(task: Task) -> Outcome:
    try:
        return succeeded(task.run())
    except BaseException as error:  # even SystemExit: the process serves further tests
        outcome = failed(error)
        _abort(f"after {type(error).__name__} on this rank: {error}")
        with contextlib.suppress(DistError):
            leave_everything()
        return outcome
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _abort(reason: str) -> None:
    for world in _living():
        world.stop(reason)


def _living() -> list[World]:
    return [world for reference in _worlds if (world := reference()) is not None]


def _vanish(directory: Path) -> None:
    """End immediately, with all that this process has started, and leave nothing: the parent may be gone."""
    shutil.rmtree(directory, ignore_errors=True)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    # Functions import this very module, so it must not be here twice.
    from rankwise_testing.worker import main as run

    run()
