"""What the ranks of a job do that are all started again when a node comes or goes: they sum, and write down each step.

Its one argument is a folder. Rank 0 writes each step into the file `saved` there, and all end once there is a file
`finish`. A wrong sum ends a rank with an error, as does a step that was saved and is lost.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import rankwise as dist


def main(folder: Path) -> None:
    """Work until the file `finish` is there."""
    dist.init_process_group("gloo", timeout=60)
    rank, size, saved = dist.get_rank(), dist.get_world_size(), folder / "saved"
    step = np.array([int(saved.read_text()) if rank == 0 and saved.exists() else 0])
    dist.broadcast(step, 0)
    ends = np.zeros(1, np.uint8)
    while not ends[0]:
        ones, ends[0] = np.ones(1000), rank == 0 and (folder / "finish").exists()
        dist.all_reduce(ones)
        assert (ones == size).all(), ones
        dist.all_reduce(ends, dist.ReduceOp.MAX)
        step += 1
        if rank == 0:
            save(saved, int(step[0]))
        time.sleep(0.005)
    os.write(1, f"{json.dumps({'steps': int(step[0])})}\n".encode())
    dist.destroy_process_group()


def save(path: Path, step: int) -> None:
    """Write a step in one piece, if it is the next one."""
    before = int(path.read_text()) if path.exists() else 0
    assert step == before + 1, f"step {step} follows step {before}"
    new = path.with_name(f"saved-{os.getpid()}")
    new.write_text(str(step))
    new.replace(path)


main(Path(sys.argv[1]))
