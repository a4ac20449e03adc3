"""What ranks do in the tests of `rankwise run --elastic`: `ranks_of(function, ...)` is the program of a run.

They work in the folder of the launcher, by the files in it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

RANK = os.environ.get("RANK", "")
#: How often this rank was started before.
LIFE = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
PATIENCE_S = 20.0


def ranks_of(function: Callable[..., object], *arguments: object) -> list[str]:
    """Return the words that have ranks call a function here."""
    return [__file__, function.__name__, *map(str, arguments)]


def _until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            sys.exit("it never came to be")
        time.sleep(0.005)


def _put(name: str, value: object) -> None:
    """Write a file that is there with what it says, or not at all."""
    Path(f"new-{name}").write_text(str(value), encoding="ascii")
    os.replace(f"new-{name}", name)


def _come(count: str | int, name: str = "came") -> None:
    """Wait until so many ranks have come here in their first lives."""
    Path(f"{name}-{RANK}").touch()
    _until(lambda: len(list(Path().glob(f"{name}-*"))) >= int(count))


def _note_end(name: str) -> None:
    """Have others know by `_has_ended` when this process has ended, and the launcher has noticed that."""
    _put(f"ending-{name}", os.getpid())


def _has_ended(name: str) -> bool:
    path = Path(f"ending-{name}")
    return path.exists() and not Path("/proc", path.read_text(encoding="ascii")).exists()


def _die(how: str) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(int(how))


def come_back(size: str, how: str) -> None:
    """Have rank 1 fail once all have come, and all end when it has come back and the test says so."""
    import hashlib

    from rankwise_network import secret

    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "RANKWISE_STORE", "TORCHELASTIC_MAX_RESTARTS")
    known = hashlib.sha256(bytes(secret.load() or b"")).hexdigest()
    print("life", LIFE, *(os.environ[name] for name in names), known)
    _come(size)
    if RANK == "1" and LIFE == 0:
        _die(how)
    if RANK == "1":
        Path("back").touch()
    _until(lambda: Path("back").exists() and Path("go").exists())


def leave(code: str) -> None:
    """Have rank 0 end with an exit code, and rank 1 leave as after a notice, later than a failure would let it."""
    _come(2)
    if RANK == "0":
        _note_end("0")
        sys.exit(int(code))
    _until(lambda: _has_ended("0"))
    time.sleep(1.0)
    Path("committed").touch()
    sys.exit(75)


def fail(*ranks: str) -> None:
    """Have some ranks fail, one after the other; the others end once all of these have."""
    before = ranks[: ranks.index(RANK)] if RANK in ranks else ranks
    _until(lambda: all(map(_has_ended, before)))
    if RANK in ranks:
        _note_end(RANK)
        sys.exit(3 + int(RANK))
    print("well")


def fail_for_good(size: str, *ranks: str) -> None:
    """Have some ranks fail, one after the other, beside others that would rather stay."""
    _come(size)
    if RANK in ranks:
        _until(lambda: all(map(_has_ended, ranks[: ranks.index(RANK)])))
        _note_end(RANK)
        sys.exit(f"rank {RANK} has failed on purpose")
    time.sleep(60)


def never_begin() -> None:
    print("begun", LIFE)
    sys.exit(5)


def fail_after_the_first_end() -> None:
    """Have rank 1 fail when rank 0 has ended well, and the launcher knows that."""
    if RANK == "0":
        _note_end("0")
        return
    _until(lambda: _has_ended(str(int(RANK) - 1)))
    _note_end(RANK)
    if RANK == "1":
        sys.exit(4)


def end_while_one_pauses() -> None:
    """Have rank 0 end when rank 1 has failed, and waits for its next start."""
    if RANK == "1":
        print("begun")
        sys.exit(4)
    _until(Path("told").exists)


def leave_a_child() -> None:
    """Have rank 1 fail and leave a process behind, and look in its next life whether that has gone."""
    if RANK == "0":
        _until(Path("looked").exists)
    if RANK == "1" and LIFE == 0:
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
        child = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        Path("child").write_text(str(child.pid), encoding="ascii")
        os._exit(3)
    if RANK == "1":
        child_pid = Path("child").read_text(encoding="ascii")
        stat = Path("/proc", child_pid, "stat")
        there = stat.exists() and stat.read_text(encoding="ascii").rpartition(")")[2].split()[0] not in "ZX"
        print("there" if there else "gone")
        Path("looked").touch()


def log_lives() -> None:
    print("life", LIFE)
    if RANK == "0" and LIFE < 2:
        sys.exit(3)


def stay_after_a_return() -> None:
    """Have rank 1 come back, and stay."""
    if RANK == "1" and LIFE == 0:
        sys.exit(3)
    print("ready", os.getpid(), flush=True)
    time.sleep(60)


def tell_limit() -> None:
    """Have all meet, so that the store is served, and rank 1 fail; print how many descriptors each may have."""
    import resource

    from rankwise import rendezvous

    store = next(rendezvous("env://", timeout=PATIENCE_S))[0]
    store.set(f"{RANK} {LIFE}", "")
    print(*resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)
    if RANK == "1" and LIFE == 0:
        os._exit(3)
    store.wait(["1 1"])
    os._exit(0)


def hold(*names: str) -> None:
    """Tell some variables, and stay until there is a file `go`, or end well after SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(*(os.environ[name] for name in names), flush=True)
    _put(f"ready-{RANK}-{LIFE}", os.getpid())
    _until(Path("go").exists)


def fail_in_the_first_life(size: str) -> None:
    """Have rank 1 fail, and all end well when they have started again."""
    _come(size, f"life-{LIFE}")
    if LIFE == 0 and RANK == "1":
        sys.exit(3)
    if LIFE == 0:
        _until(Path("go").exists)


def hold_or_end_well() -> None:
    """Have rank 0 end well once there is a file `ended`, and the others stay until there is a file `go`."""
    Path(f"ready-{RANK}-{LIFE}").touch()
    _until(Path("ended" if RANK == "0" else "go").exists)


def await_the_node() -> None:
    """Have rank 0 wait for others, of which one does not come."""
    import rankwise as dist

    if RANK == "1":
        Path("ready-1-0").touch()
        _until(Path("go").exists)
    try:
        dist.init_process_group("gloo", timeout=PATIENCE_S)
    except dist.PeerDiedError as error:
        print("told:", error, flush=True)


# ---------------------------------------------------------------------- how they meet again


def train_from_a_file(size: str) -> None:
    """Take ten steps, of which rank 0 saves each; wait after five for a rank to be gone, if all are there."""
    import numpy as np

    import rankwise as dist

    dist.init_process_group("gloo", timeout=PATIENCE_S)
    saved, step = Path("saved"), np.zeros(1)
    step[0] = int(saved.read_text(encoding="ascii")) if saved.exists() else 0
    dist.broadcast(step, 0)
    while step[0] < 10:
        one = np.ones(1)
        dist.all_reduce(one, op=dist.ReduceOp.AVG)
        step += one
        if RANK == "0":
            _put("saved", int(step[0]))
        if step[0] == 5 and dist.get_world_size() == int(size):
            Path("halfway").touch()
            while True:
                dist.all_reduce(one)
    print(int(step[0]), "steps,", dist.get_world_size(), "ranks")
    dist.destroy_process_group()


def train(steps: str, how: str) -> None:
    """Have rank 1 fail in the middle, and all make a new group and go on from the furthest step."""
    import numpy as np

    import rankwise as dist

    step, total = np.zeros(1), np.zeros(1)
    while step[0] < int(steps):
        dist.init_process_group("gloo", timeout=PATIENCE_S)
        try:
            dist.all_reduce(step, op=dist.ReduceOp.MAX)
            while step[0] < int(steps):
                if RANK == "1" and LIFE == 0 and step[0] == 2:
                    _die(how)
                total[0] = 1.0
                dist.all_reduce(total)
                step += 1
        except dist.DistError as error:
            print(type(error).__name__, flush=True)
            step = np.floor(step)
        dist.destroy_process_group()
    print("ranks:", int(total[0]))


def shrink() -> None:
    """Have rank 2 be killed, and the others make a smaller group immediately."""
    import numpy as np

    import rankwise as dist

    dist.init_process_group("gloo", timeout=PATIENCE_S)
    if RANK == "2":
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.barrier()
    except dist.PeerDiedError:
        print("told")
    dist.destroy_process_group()
    dist.init_process_group("gloo", rank=int(RANK), world_size=2, timeout=PATIENCE_S)
    total = np.ones(1)
    dist.all_reduce(total)
    print("ranks:", int(total[0]))
    dist.destroy_process_group()


def miss_the_meeting(when: str) -> None:
    """Have rank 1 fail before it has come to the others, or while it waits for rank 0 with them; and all meet."""
    import threading

    import rankwise as dist

    if RANK == "1" and LIFE == 0:
        _until(Path("waiting").exists)
        if when == "before":
            os._exit(3)
        threading.Thread(target=_end_when_seated, daemon=True).start()
    if RANK == "0" and when == "within":
        _until(Path("told").exists)
    while True:
        if RANK == "2":
            Path("waiting").touch()
        try:
            dist.init_process_group("gloo", timeout=PATIENCE_S)
            break
        except dist.PeerDiedError:
            print("told", flush=True)
            Path("told").touch()
    print("ranks:", dist.get_world_size(), flush=True)
    dist.destroy_process_group()


def _end_when_seated() -> None:
    """End once this rank has taken its seat among those that meet, which its successor cannot have then."""
    from rankwise import rendezvous

    store = next(rendezvous("env://", timeout=PATIENCE_S))[0]
    _until(lambda: any(key.endswith("meet/rank/1") for key in store.list_keys()))
    os._exit(3)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
