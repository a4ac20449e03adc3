"""What ranks do whose store the launcher serves: `ranks_of(function, ...)` is the program of a run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankwise import Store

RANK = os.environ.get("RANK", "")
PATIENCE_S = 20.0


def ranks_of(function: Callable[..., object], *arguments: object) -> list[str]:
    """Return the words that have ranks call a function here."""
    return [__file__, function.__name__, *map(str, arguments)]


def _begin() -> None:
    """Make the default group, and see that it works."""
    import numpy as np

    import rankwise as dist

    dist.init_process_group("gloo", timeout=PATIENCE_S)
    array = np.ones(2)
    dist.all_reduce(array)
    assert array[0] == dist.get_world_size()


def begin_with_a_secret_of_the_program() -> None:
    """Make the default group with a secret that the launcher does not know."""
    import rankwise as dist

    dist.secret.use(bytes(range(32)))
    _begin()
    print("began", flush=True)
    dist.destroy_process_group()


def _store() -> Store:
    import rankwise as dist

    return next(dist.rendezvous("env://", timeout=PATIENCE_S))[0]


def _told_port() -> int:
    return int(os.environ["RANKWISE_STORE"].partition("@")[0])


def _listens(process: int | str, port: int) -> bool:
    """Tell whether a process has a socket that listens at a port."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file]
    names = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "0A"}
    assert names, port
    found = set()
    for number in os.listdir(f"/proc/{process}/fd"):
        with suppress(FileNotFoundError):  # as that of the listing itself
            found.add(os.readlink(f"/proc/{process}/fd/{number}"))
    return bool(found & names)


def look(launcher: str) -> None:
    """Print who serves the store, and whether anybody serves one at the master's port."""
    _begin()
    where = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
    with socket.socket() as probe:
        free = probe.connect_ex(where) != 0
    end = time.monotonic() + PATIENCE_S
    while not os.path.exists(launcher) and time.monotonic() < end:
        time.sleep(0.005)
    with open(launcher, encoding="ascii") as file:
        places = {"mine": "self", "the launcher's": file.read()}
    print("free" if free else "taken", *(whose for whose, process in places.items() if _listens(process, _told_port())))


def tell_of_the_store() -> None:
    print(os.environ.get("RANKWISE_STORE", "none"))


def outlive_rank_0() -> None:
    """Have rank 0 end while the others wait for it, and print what they are told, and what the store has then."""
    import numpy as np

    import rankwise as dist

    _begin()
    store = _store()
    if RANK == "0":
        os._exit(0)  # after which, other than after a failure, the launcher gives the others all their time
    try:
        dist.all_reduce(np.ones(2))
    except dist.DistError as error:
        print(type(error).__name__, error)
    store.add("survivors", 1)
    store.barrier("both", 2)
    print(int(store.get("survivors")), "survivors", flush=True)
    os._exit(0)


def die_in_a_meeting() -> None:
    """Have rank 0 be killed when the others wait for one who does not come."""
    import rankwise as dist
    from rankwise.groups import handshake

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if RANK == "2":
        signal.pause()
    if RANK == "0":

        def die(store: Store, *_: object) -> None:
            while int(store.peek("come") or b"0") < 1:
                time.sleep(0.002)
            os.kill(os.getpid(), signal.SIGKILL)

        handshake._verdict = die
    try:
        dist.init_process_group("gloo", timeout=PATIENCE_S)
    except dist.DistError as error:
        print(type(error).__name__, error, flush=True)


def live_twice() -> None:
    """Begin and end again and again, and print what that leaves in the store."""
    import rankwise as dist

    store = _store()
    for life in range(3):
        _begin()
        store.add(f"life {life}", 1)
        dist.destroy_process_group()
    store.barrier("all have left", 3)
    print(*(int(store.get(f"life {life}")) for life in range(3)), *filter(_is_of_a_life, store.list_keys()))


def _is_of_a_life(key: str) -> bool:
    return key.startswith("world/life-")


def fail_once() -> None:
    """Have the first attempt fail after it has left something in the store."""
    _begin()
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    store = _store()
    print("attempt", attempt, "finds", store.list_keys().count("left here"), flush=True)
    store.barrier("all have looked", 2)
    store.set("left here", attempt)
    if RANK == "1" and attempt == "0":
        sys.exit(3)
    if attempt == "0":
        signal.pause()


def choose_another_master() -> None:
    """Meet at a port that rank 0 has chosen, and print who serves the store there."""
    import rankwise as dist

    store, name = _store(), "MASTER_PORT"
    if RANK == "0":
        with socket.create_server(("127.0.0.1", 0)) as server:
            store.set(name, str(server.getsockname()[1]))
    os.environ[name] = store.get(name).decode()
    there = next(dist.rendezvous("env://", timeout=PATIENCE_S))[0]
    assert there.port == int(os.environ[name]), there
    there.barrier("both are here", 2)
    print(there.is_master)
    store.barrier("both have seen it", 2)  # for rank 0 serves it


def launch_within() -> None:
    """Have each rank launch a job of its own, within this one."""
    ranks = ranks_of(meet)
    command = [sys.executable, "-m", "rankwise", "run", "-n", "2", *ranks]
    secret = [int(os.environ["RANKWISE_SECRET_FD"])]
    done = subprocess.run(command, capture_output=True, text=True, pass_fds=secret, timeout=PATIENCE_S)
    _begin()
    print(done.returncode, done.stdout.count(os.environ["RANKWISE_STORE"]), done.stdout.count("met"), done.stderr)


def meet() -> None:
    _begin()
    print("met", os.environ["RANKWISE_STORE"])


def wait_for_more() -> None:
    """Say that somebody has come to the store, and wait there."""
    store = _store()
    if RANK == "0":
        print("waiting", flush=True)
    store.wait(["never set"])


def meet_on_nodes() -> None:
    """Meet on several nodes; print what the ranks were told, and what is found by the master's address."""
    import rankwise as dist
    from rankwise_launch.commands import CommandError
    from rankwise_tools.top.jobs import open_store

    _begin()
    end = time.monotonic() + PATIENCE_S
    found: list[int] = []
    while RANK == "0" and found != [0, 1, 2] and time.monotonic() < end:
        try:
            job = open_store(f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}")
        except CommandError:
            continue  # nobody has sent a heartbeat so far
        found = sorted(job._ranks)
        job.close()
    dist.barrier()
    print(os.environ["RANKWISE_STORE"], _store().is_master, *found)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
