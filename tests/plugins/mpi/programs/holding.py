"""A group is made while rank 0, which is no member, holds its interpreter: its members keep what they meet by."""

from __future__ import annotations

import ctypes
import os
import sys

import numpy as np

import rankwise as dist

dist.init_process_group("mpi", timeout=20)
pipe = os.open(sys.argv[1], os.O_RDWR)
dist.barrier()
if dist.get_rank() == 0:  # until the group is made: no thread of this process gets a turn
    ctypes.PyDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)
if dist.get_rank() >= 2:
    group = dist.new_group([2, 3], use_local_synchronization=True)
    word = np.ones(1)
    dist.all_reduce(word, group=group)
    assert word == 2
    if dist.get_rank() == 2:
        os.write(pipe, b"!")
dist.barrier()
dist.destroy_process_group()
print("fine", flush=True)
