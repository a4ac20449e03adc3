"""An elastic job that loses ranks and gains them: `rankwise demo --elastic` runs this program on four ranks.

    rankwise run -n 4 --elastic --max-restarts 10 -m rankwise_launch.demo_elastic

Rank 0 kills two others in the middle of the work, and the launcher starts both again. The ranks add up ones, so that
the sums show at the end if a step was lost, or made twice.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

import rankwise as dist

#: How many numbers the ranks add up.
COUNT = 100_000
#: Who is killed, one after the other, and after how many steps of an epoch.
VICTIMS, STEPS = (2, 1), 30
#: How long they live at least: whom the launcher sees fail within a second of its start, imports included, has to wait.
LIVES_S = 0.75


class Play:
    """What rank 0 does: it kills the others, tells what becomes of the job, and ends it.

    Attributes:
        is_over: Whether both are killed and back.
    """

    def __init__(self, size: int) -> None:
        self._size, self._began = size, time.perf_counter()
        self._victims = [rank for rank in VICTIMS if rank < size]
        self._pids: list[Any] = []
        self._killed_at = 0.0
        self._steps = 0
        self.is_over = False

    def epoch_begins(self, epoch: Any) -> None:
        """Learn which processes there are; all ranks call this."""
        self._steps, self._pids = 0, [None] * epoch.size
        dist.all_gather_object(self._pids, os.getpid())

    def step_begins(self, step: int) -> None:
        """Kill a rank, if it is time; it will be missed in this step."""
        is_whole = len(self._pids) == self._size
        if self._steps < STEPS or time.perf_counter() - self._began < LIVES_S:
            return
        if self._victims and (is_whole or len(self._victims) < len(VICTIMS)):
            victim = self._victims.pop(0)
            tell(f"step {step}: rank 0 kills rank {victim}, process {self._pids[victim]}")
            self._killed_at = time.perf_counter()
            os.kill(self._pids[victim], signal.SIGKILL)
        self.is_over = is_whole and not self._victims

    def step_ends(self, step: int) -> None:
        """Tell of the first sum of an epoch."""
        self._steps += 1
        if self._steps > 1:
            return
        ranks = f"{len(self._pids)} rank{'s' * (len(self._pids) > 1)}"
        if self._killed_at:
            took_ms = 1e3 * (time.perf_counter() - self._killed_at)
            tell(f"{took_ms:.0f} ms later {ranks} have summed again, and step {step} is made")
            self._killed_at = 0.0
        elif step > 1:
            tell(f"a newcomer has received the state from the others: {ranks} make step {step}")
        else:
            tell(f"{ranks} begin, in processes {', '.join(map(str, self._pids))}")


def tell(text: str) -> None:
    """Print a line now."""
    print(text, flush=True)


def main() -> None:
    """Add up ones, whatever happens to the ranks."""
    dist.init_process_group("gloo", enable_reconfigure=True)
    state = dist.elastic.State(sums=np.zeros(COUNT), step=0)
    play = Play(int(os.environ.get("WORLD_SIZE", "1")))

    @dist.elastic.run(on_epoch=play.epoch_begins)
    def work(state: Any) -> None:
        ends = np.zeros(1, np.uint8)
        while not ends[0]:
            is_first = dist.get_rank() == 0
            if is_first:
                play.step_begins(state.step + 1)
            ones, ends[0] = np.ones(COUNT), is_first and play.is_over
            dist.all_reduce(ones, dist.ReduceOp.AVG)
            dist.all_reduce(ends, dist.ReduceOp.MAX)
            state.sums += ones
            state.step += 1
            if is_first:
                play.step_ends(state.step)
            state.commit()

    work(state)
    if not (state.sums == state.step).all():
        raise SystemExit("a step was lost, or made twice")
    if dist.get_rank() == 0:
        tell(f"after {state.step} steps each of {COUNT:,} sums is {state.sums[0]:g}: no step was lost, none made twice")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
