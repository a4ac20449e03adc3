"""A program with a group of its own, which repeats what it is told until its input ends; `test_recorder.py` runs it."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np

import rankwise as dist
import rankwise_local


def begin() -> None:
    dist.init_process_group("local", store=dist.HashStore(), rank=0, world_size=1)


def fork(again: bool) -> None:
    child = os.fork()
    if child == 0:
        if again:
            begin()
        os.kill(os.getpid(), signal.SIGUSR1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def main(words: list[str]) -> None:
    if "own" in words:
        # Not by `print`, which a signal may have interrupted within a call that cannot be entered again.
        signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"mine\n"))
    begin()
    dist.all_reduce(np.ones(1))
    if "fork" in words:
        fork("again" in words)
    print("ready", flush=True)
    if "exit" not in words:
        for line in sys.stdin:
            print(line, end="", flush=True)
    if "destroy" in words:
        dist.destroy_process_group()
        print(signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL)


assert rankwise_local  # has registered "local"
if __name__ == "__main__":
    main(sys.argv)
