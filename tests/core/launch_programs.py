"""What ranks do in the tests of `rankwise run` and `spawn`: `ranks_of(function, ...)` is the program of a run.

Each rank is a process of its own, so that what few of them need is imported there. They work in the folder of the
launcher, by the files in it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

RANK = os.environ.get("RANK", "")
ATTEMPT = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")


def ranks_of(function: Callable[..., object], *arguments: object) -> list[str]:
    """Return the words that have ranks call a function here."""
    return [__file__, function.__name__, *map(str, arguments)]


def _until(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.005)


# ---------------------------------------------------------------------- what they tell


def tell(*names: str) -> None:
    """Print variables."""
    print(*(os.environ[name] for name in names))


def tell_input() -> None:
    print(repr(sys.stdin.read()))


def tell_both_ways() -> None:
    print("out")
    print("err", file=sys.stderr)


def tell_secret() -> None:
    """Print what is known of the job secret, and whether others can see it."""
    import hashlib

    from rankwise_network import secret

    known = bytes(secret.load() or b"")
    places = [("self", "environ"), ("self", "cmdline"), (os.getppid(), "environ"), (os.getppid(), "cmdline")]
    seen = b"".join(Path(f"/proc/{process}/{name}").read_bytes() for process, name in places)
    print(len(known), known in seen or known.hex().encode() in seen, hashlib.sha256(known).hexdigest())


def say(*words: str) -> None:
    print(*words)


def say_without_end() -> None:
    while True:
        print("more", flush=True)


def say_in_pieces() -> None:
    """Write long lines to both streams, each in two pieces, and a line without an end."""
    for number in range(300):
        for stream, mark in ((1, "o"), (2, "e")):
            line = f"{mark}{number:04}" + mark * 3000 + "\n"
            for part in (line[:7], line[7:]):
                os.write(stream, part.encode())
    os.write(1, b"no newline")


def say_much(count: int) -> None:
    for _ in range(int(count)):
        print("x" * 200)
    print("the end")


def count_up_both_ways() -> None:
    for number in range(300):
        print(number)
        print(number, file=sys.stderr)
    Path("ended").touch()


# ---------------------------------------------------------------------- how they meet


def meet() -> None:
    """Meet two others in a store of our own."""
    from rankwise import TCPStore

    store = TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), 3, RANK == "0", 20)
    store.set(f"key {RANK}", RANK)
    store.wait([f"key {rank}" for rank in range(3)])
    store.barrier("end", 3)
    print("met")


def make_groups() -> None:
    import rankwise as dist

    dist.init_process_group("gloo")
    dist.new_group([0, 1], group_desc="pair")
    dist.destroy_process_group()


def be_interrupted() -> None:
    import numpy as np

    import rankwise as dist

    dist.init_process_group("gloo")
    if RANK == "0":
        print("waiting", flush=True)
        signal.pause()
    dist.all_reduce(np.ones(3))


# ---------------------------------------------------------------------- how they stay


def have_child() -> None:
    """Write down the process ids of this process and of one that it has started, and tell that both are ready."""
    import subprocess

    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    Path(f"pids-{RANK}").write_text(f"{os.getpid()} {child.pid}", encoding="utf-8")
    print("ready", flush=True)


def stay() -> None:
    have_child()
    time.sleep(60)


def clean_up() -> None:
    try:
        print("ready")
        time.sleep(60)
    except KeyboardInterrupt:
        print("cleaned up")


def stay_beside_a_failure() -> None:
    """Have rank 2 fail once all have begun, beside one that has ended and two that would rather stay."""
    have_child()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if RANK == "3":
        return
    if RANK == "2":
        _until(lambda: len(list(Path().glob("pids-*"))) == 4)
        time.sleep(0.3)
        print(time.time(), flush=True)
        try:
            _ = 1 / 0
        except ZeroDivisionError as error:
            raise ValueError("the cause") from error
    time.sleep(60)


def stay_longer() -> None:
    time.sleep(6.0 if RANK == "0" else 0.0)


def save_at_a_signal() -> None:
    """Take time to save something when told to end."""

    def save(number: int, _: object) -> None:
        time.sleep(1.5)
        print("saved after", number, flush=True)
        sys.exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, save)
    Path(f"ready-{RANK}").touch()
    time.sleep(60)


def be_deaf() -> None:
    """Go on when told to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(f"ready-{RANK}").touch()
    time.sleep(600)


def count_signals() -> None:
    got = []

    def note(number: int, _: object) -> None:
        got.append(number)
        Path(f"got-{RANK}").touch()

    signal.signal(signal.SIGTERM, note)
    Path(f"ready-{RANK}").touch()
    _until(Path("end").exists)
    print(len(got))


def note_signals(*numbers: str) -> None:
    """Note signals until there is a file `end`, and tell which have come."""
    got: list[int] = []

    def note(number: int, _: object) -> None:
        got.append(number)
        Path(f"got-{RANK}-{number}").touch()

    for number in map(int, numbers):
        signal.signal(number, note)
    Path(f"new-{RANK}").write_text(str(os.getpid()), encoding="utf-8")
    os.replace(f"new-{RANK}", f"ready-{RANK}")
    _until(Path("end").exists)
    print(*got)


def outlive(node: str, phase: str) -> None:
    """Be on one of the nodes of which another is lost: run on, have ended, or fail once it is."""
    Path(f"ready-{RANK}").touch()
    if phase == "failing":
        _until(Path("end").exists)
        sys.exit(3)
    time.sleep(0 if phase == "done" and os.environ["GROUP_RANK"] != node else 60)


def end_when_told() -> None:
    Path(f"ready-{RANK}").touch()
    _until(Path("end").exists)


# ---------------------------------------------------------------------- how they end


def _gone(pid: str) -> bool:
    """Tell whether a process has ended; the launcher may keep it for a moment after that."""
    try:
        return Path("/proc", pid, "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def _first(rank: str) -> bool:
    """Tell whether this rank is to end first; all others come back once it has ended."""
    if rank == RANK:
        Path("mine").write_text(str(os.getpid()), encoding="utf-8")
        os.replace("mine", "ending")
        return True
    _until(Path("ending").exists)
    _until(lambda: _gone(Path("ending").read_text(encoding="utf-8")))
    return False


def fall_over_another() -> None:
    """Have rank 0 say, before it is so, that rank 1 is gone."""
    from rankwise import PeerDiedError

    if _first("0"):
        raise PeerDiedError(1, "here", "it was said")
    os._exit(9)


def say_last_words() -> None:
    if _first("0"):
        sys.exit(3)
    time.sleep(0.1)  # what it takes to notice, and to unwind
    sys.exit("the last words")


def miss_one(what: str) -> None:
    """Have rank 1 end well, and the others say that it is gone, or has not come."""
    from rankwise import DistTimeoutError, PeerDiedError

    if not _first("1"):
        raise PeerDiedError(1, "here", "it was said") if what == "gone" else DistTimeoutError("rank 1 did not come")


def end_as(code: str) -> None:
    """Have rank 1 end with an exit code, or by a signal, which is a negative one; the others stay."""
    if RANK != "1":
        time.sleep(60)
    if int(code) < 0:
        os.kill(os.getpid(), -int(code))
    sys.exit(int(code))


def fault() -> None:
    import ctypes

    ctypes.string_at(0)


def deep_inside(name: str) -> None:
    os.kill(os.getpid(), getattr(signal, name))
    signal.pause()


def attempt(until: str) -> None:
    """Fail until some attempt."""
    print("attempt", ATTEMPT, "of", os.environ["TORCHELASTIC_MAX_RESTARTS"])
    sys.exit(3 if until > ATTEMPT else 0)


def fail_with_last_words() -> None:
    if RANK == "1":
        print("these are the last words", file=sys.stderr)
        sys.exit(7)
    time.sleep(60)


def fail_late() -> None:
    """Have the first attempt of rank 1 fail when rank 0 has ended."""
    print("attempt", ATTEMPT)
    if RANK == "1":
        time.sleep(0.3)
        sys.exit(ATTEMPT == "0")


def miss_another() -> None:
    from rankwise import PeerDiedError

    if RANK == "0":
        raise PeerDiedError(1, "here", "it was said")


# ---------------------------------------------------------------------- what `spawn` calls


def write_place(number: int, folder: str) -> None:
    """Write down the place of a rank, and the job secret."""
    from rankwise_network import secret

    known = secret.load()
    place = [os.environ.get(name, "-") for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")]
    Path(folder, str(number)).write_text(f"{' '.join(place)} {known.hex() if known else None}", encoding="utf-8")


def fail_beside(number: int, how: str, folder: str) -> None:
    """Have rank 1 fail once both have begun, beside one that would rather stay."""
    Path(folder, f"pid-{number}").write_text(str(os.getpid()), encoding="utf-8")
    _until(lambda: len(list(Path(folder).glob("pid-*"))) == 2)
    if number == 1:
        if how == "raise":
            raise ValueError("the cause")
        if how == "exit":
            sys.exit(5)
        os.kill(os.getpid(), signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)


def wait_for(number: int, path: str) -> None:
    _until(Path(path).exists)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
