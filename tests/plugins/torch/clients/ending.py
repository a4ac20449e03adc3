"""What the programs here have in common: how they end, in a first attempt and at last."""

import os
import signal
import sys

import torch.distributed as dist


def perhaps(step):
    """Kill rank 1 of the first attempt of a job that is to be started again."""
    if not os.environ.get("TO_BE_KILLED") or os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":
        return
    if step == 2 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)


def well():
    """Check that what has run, has run over rankwise, and say so; the process's exit code says the rest."""
    assert "rankwise_torch.group" in sys.modules
    if dist.is_initialized():
        assert type(dist.group.WORLD).__name__ == "RankwiseGroup"
        dist.destroy_process_group()
    print("over rankwise\n", end="", flush=True)
