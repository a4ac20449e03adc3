"""Ranks of an elastic job, which work until there is a file `end`; each tells of its notices and its end."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import rankwise as dist

NODE = os.environ["SLURMD_NODENAME"]


def say(*words):
    print(f"{os.environ['RANK']} on {NODE}:", *words, flush=True)


def tell_size(epoch):
    if epoch.rank == 0:
        say("size", epoch.size)


@dist.elastic.run(on_epoch=tell_size, wait_s=10)
def work(state):
    while not state.over:
        ones, over = np.ones(10), np.array([float(Path("end").exists())])
        dist.all_reduce(ones)
        dist.all_reduce(over, dist.ReduceOp.MAX)
        state.sum += ones / dist.get_world_size()
        state.step, state.over = state.step + 1, bool(over[0])
        time.sleep(0.01)
        state.commit()


dist.elastic.expect_notice(getattr(signal, sys.argv[1]), grace_s=20)
dist.elastic.on_notice(lambda seconds: say(f"notice, {seconds:.0f} s left"))
dist.init_process_group("gloo", enable_reconfigure=True, timeout=60)
state = dist.elastic.State(sum=np.zeros(10), step=0, over=False)
try:
    work(state)
finally:
    assert (state.sum == state.step).all()
    say("left" if dist.elastic.leaving() else "finished", "with every step counted once")
dist.destroy_process_group()
