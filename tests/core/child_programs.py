"""What ranks start in the tests of `rankwise run`, each a process of its own: `start_all` is the ranks' program."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

PATIENCE_S = 60.0


def _world(rank: int = -1, world_size: int = -1) -> None:
    """Say how many have added up a one."""
    import numpy as np

    import rankwise as dist

    dist.init_process_group("gloo", rank=rank, world_size=world_size, timeout=PATIENCE_S)
    total = np.ones(1)
    dist.all_reduce(total)
    os.write(1, f"world of {total[0]:.0f}\n".encode())  # a line at a time, as others write there too
    dist.destroy_process_group()


def world_of_one() -> None:
    _world(0, 1)


def its_place() -> None:
    """Take the place that the variables tell."""
    try:
        _world()
    except ValueError as error:
        print("no rank" if "has not inherited the job secret of rank" in str(error) else error)


def nested() -> None:
    subprocess.run([sys.executable, "-m", "rankwise", "run", "-n", "2", __file__, "its_place"], check=True)


def _spawned(index: int) -> None:
    _world()


def spawned() -> None:
    import rankwise as dist

    dist.spawn(_spawned, nprocs=2)


def store() -> None:
    import rankwise as dist

    with dist.TCPStore("127.0.0.1", 0, is_master=True) as mine:
        mine.set("key", "value")
        print(mine.get("key").decode())


def another_pipe() -> None:
    """Have a pipe of one's own where the rank has the secret."""
    from rankwise_network import secret

    reader, writer = os.pipe()
    os.dup2(reader, int(os.environ["RANKWISE_SECRET_FD"]))
    os.write(writer, b"unread")
    secret.load()
    print(os.read(int(os.environ["RANKWISE_SECRET_FD"]), 6).decode())


def no_rankwise() -> None:
    print("rankwise" in sys.modules)


#: What they print where the job has one rank, and where it has two.
CHILDREN = {
    world_of_one: ("world of 1", "world of 1"),
    its_place: ("world of 1", "no rank"),
    nested: ("[0]: world of 2 [1]: world of 2", "[0]: world of 2 [1]: world of 2"),
    spawned: ("world of 2 world of 2", "world of 2 world of 2"),
    store: ("value", "value"),
    another_pipe: ("unread", "unread"),
    no_rankwise: ("False", "False"),
}


def start_all() -> None:
    """Start each of them by `subprocess`, as a rank; and have two that inherit the secret take the rank's place."""
    for child in CHILDREN:
        _run(child.__name__)
    _run("its_place", [int(os.environ["RANKWISE_SECRET_FD"])])
    forked = multiprocessing.get_context("fork").Process(target=_world)
    print("forked: ", end="", flush=True)
    forked.start()
    forked.join(PATIENCE_S)


def _run(name: str, pass_fds: list[int] | None = None) -> None:
    done = subprocess.run(
        [sys.executable, __file__, name], capture_output=True, text=True, pass_fds=pass_fds or (), timeout=PATIENCE_S
    )
    said = " ".join([*sorted(done.stdout.splitlines()), *done.stderr.splitlines()[-1:]])
    print(f"{name}{' that inherits' if pass_fds else ''}: {said}", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
