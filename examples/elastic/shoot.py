"""Start the ranks of train.py, shoot some of them, and start those again: python examples/elastic/shoot.py

Prints what rank 0 says, with the seconds since all have met. Of the four processes that begin, one is left at the end.
"""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import rankwise as dist

SIZE = 4
#: From which step on which ranks of those that were started are shot, as soon as all ranks are there.
SHOTS = [(40, [1]), (160, [0, 2])]
DEADLINE_S = 60.0


class Job:
    """The ranks, by the numbers with which they were started, and what they print."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.processes: dict[int, subprocess.Popen[str]] = {}
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def start(self, rank: int) -> None:
        """Start a rank, as often as it takes."""
        program = [sys.executable, str(Path(__file__).with_name("train.py"))]
        command = [*program, str(self.port), str(rank), str(SIZE)]
        process = self.processes[rank] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, args=(process,), daemon=True).start()

    def read(self, process: subprocess.Popen[str]) -> None:
        """Pass on what a rank prints, and an empty line when it has ended."""
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.put(line.rstrip())
        self.lines.put("")

    def shoot(self, ranks: list[int]) -> None:
        """Kill some ranks without a warning, and start them again."""
        for rank in ranks:
            self.processes[rank].kill()
        for rank in ranks:
            self.processes[rank].wait()
            self.start(rank)


def watch(job: Job) -> None:
    """Print what happens, and shoot when it is time, until all ranks have ended."""
    began, size, shots, running = 0.0, 0, [*SHOTS], SIZE
    while running:
        line = job.lines.get(timeout=DEADLINE_S)
        if not line:
            running -= 1
            continue
        began = began or time.monotonic()
        print(f"{time.monotonic() - began:5.2f} s  {line}", flush=True)
        word, number, *rest = re.split(r"\W+", line)
        if word == "epoch":
            size = int(rest[0])
        elif word == "step" and shots and size == SIZE and int(number) >= shots[0][0]:
            ranks = shots.pop(0)[1]
            print(f"{time.monotonic() - began:5.2f} s  shot: {len(ranks)} of {size} ranks", flush=True)
            running += len(ranks)
            job.shoot(ranks)
    if shots:
        raise SystemExit("the ranks have ended before all shots")


def main() -> int:
    """Serve the store where the ranks meet, and look after them; return how many have failed."""
    store = dist.TCPStore("127.0.0.1", is_master=True, wait_for_workers=False)
    job = Job(store.port)
    try:
        for rank in range(SIZE):
            job.start(rank)
        watch(job)
        return sum(process.wait(DEADLINE_S) != 0 for process in job.processes.values())
    finally:
        for process in job.processes.values():
            process.kill()
            process.wait()
        store.close()


if __name__ == "__main__":
    sys.exit(main())
