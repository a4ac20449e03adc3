"""What a rank costs that only waits, and that it hears of a death at once although it sleeps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")

TIMEOUT_S = 60
#: Ten a second are meant; a busy machine adds some, and each slice of 20 ms alone would make fifty.
MOST_WAKE_UPS = 25

WAITING = """
import os, sys, threading, time
import numpy as np, rankwise as dist

dist.init_process_group("gloo", timeout=60)
rank, array = dist.get_rank(), np.ones(4)
message = sys.argv[1] == "recv"

def wake_ups():
    lines = [line for task in os.listdir("/proc/self/task") for line in open(f"/proc/self/task/{task}/status")]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))

def measure(found):
    time.sleep(1.5)
    before, began = wake_ups(), time.monotonic()
    time.sleep(2)
    found.append((wake_ups() - before) / (time.monotonic() - began))

dist.barrier()
found = []
if rank == 0:
    time.sleep(4)
    if message:
        dist.send(array, 1)
else:
    measuring = threading.Thread(target=measure, args=(found,))
    measuring.start()
    if message:
        dist.recv(array, 0)
if not message:
    dist.all_reduce(array)
if rank == 1:
    measuring.join()
    print("wake-ups", found[0], flush=True)
if sys.argv[2] == "dies":  # well, or the launcher would end the other
    if rank == 0:
        time.sleep(1.5)
        print("at", time.monotonic(), flush=True)
        os._exit(0)
    try:
        dist.all_reduce(array)
    except dist.PeerDiedError:
        print("heard", time.monotonic(), flush=True)
        os._exit(0)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("what", ["all_reduce", "recv"])
def test_a_rank_that_waits_hardly_wakes_and_hears_of_a_death_at_once(tmp_path: Path, what: str, transport: str) -> None:
    (tmp_path / "waiting.py").write_text(WAITING)
    done = subprocess.run(
        [sys.executable, "-m", "rankwise", "run", "-n", "2", "waiting.py", what, "dies"],
        cwd=tmp_path,
        env={**os.environ, "RANKWISE_GLOO_TRANSPORT": transport},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    said = dict(line.split("]: ")[1].split() for line in done.stdout.splitlines())
    assert float(said["wake-ups"]) < MOST_WAKE_UPS, done.stdout
    assert float(said["heard"]) - float(said["at"]) < 1.0, done.stdout


def test_a_loop_that_another_thread_has_closed_has_nothing_to_wait_for():
    from rankwise_gloo_tcp.engine.loop import Loop

    loop = Loop()
    assert loop.fileno() >= 0
    loop.close()
    assert loop.fileno() == -1  # the thread that looks after idle engines may come just then
