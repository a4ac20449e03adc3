"""How `torchs_files.py` reads files of torch's tests, of which no checkout is at hand here."""

import unittest
from types import SimpleNamespace

import on_the_cpu
import pytest
import torchs_files

_ASKS_FOR_GPUS = """
import torch

COUNT = torch.cuda.device_count
DEVICES = ["cuda", "cuda:0", f"cuda:{COUNT}"]
DEVICE = torch.device("cuda", COUNT() % 2)
MOVED = torch.ones(2).cuda((1 + 1) % 2).device
BACKEND = "nccl"
"""


def test_the_cpu_stands_for_gpus(tmp_path):
    """Where a file names them, in whatever way."""
    file = tmp_path / "asks_for_gpus.py"
    file.write_text(_ASKS_FOR_GPUS, encoding="utf-8")
    read = on_the_cpu.load(file)
    assert (read.DEVICES, str(read.DEVICE), str(read.MOVED)) == (["cpu"] * 3, "cpu", "cpu")
    assert (read.BACKEND, read.COUNT()) == ("gloo", 1)


def test_a_test_without_ranks_is_skipped():
    """It would pass on both, and nothing would be compared."""
    with pytest.raises(unittest.SkipTest):
        torchs_files._start_ranks(SimpleNamespace(world_size=0), None)
