"""The actors of these tests: each has a buffer and a list of buffers, and does what `ray.util.collective` has."""

import ctypes
import gc
import os
import threading
import time

import numpy as np
import ray
from ray.util import collective as col
from ray.util.collective.types import ReduceOp

import rankwise_ray  # registers the backend in the actor


def filled(kind, shape, value, dtype="float32"):
    """Return a tensor full of a value: of NumPy, or of torch."""
    if kind == "numpy":
        return np.full(shape, value, dtype)
    import torch

    return torch.full(tuple(np.atleast_1d(shape)), value, dtype=getattr(torch, dtype))


def as_list(tensor):
    return np.asarray(tensor).tolist()


class Base:
    def init(self, size, rank, name, backend="rankwise"):
        col.init_collective_group(size, rank, backend, name)
        return True

    def make(self, actors, name):
        rankwise_ray.create_group(actors, name)

    def destroy(self, name):
        col.destroy_collective_group(name)

    def state(self, name):
        return col.get_rank(name), col.get_collective_group_size(name), col.is_group_initialized(name)

    def do(self, op, name, tensor, *args, **options):
        """Carry out an operation of Ray's on a tensor that this actor was given, and return it."""
        getattr(col, op)(tensor, *args, group_name=name, **options)
        return tensor

    def reduce_all(self, name, tensor, op):
        col.allreduce(tensor, name, getattr(ReduceOp, op))
        return tensor

    def reduce_to(self, name, tensor, root, op):
        col.reduce(tensor, root, name, getattr(ReduceOp, op))
        return tensor

    def gather(self, name, parts, tensor):
        col.allgather(parts, tensor, name)
        return parts

    def scatter(self, name, tensor, parts, op="SUM"):
        col.reducescatter(tensor, parts, name, getattr(ReduceOp, op))
        return tensor

    def barrier(self, name):
        col.barrier(name)

    def first_sum(self, name):
        """Add up a tensor of this actor's own; return how long that has taken too."""
        began = time.monotonic()
        tensor = np.ones(4)
        col.allreduce(tensor, name)
        return float(tensor[0]), time.monotonic() - began

    def wait_to_be_told(self, name):
        """Stand in a barrier that one actor never comes to; return the error, and when it came."""
        try:
            col.barrier(name)
        except Exception as error:
            return type(error).__name__, str(error), time.time()
        return "", "", time.time()

    def die(self):
        os.kill(os.getpid(), 9)

    def now(self):
        return time.time()

    def resources(self):
        """Count what a group may leave behind: threads, descriptors, and memory in KiB."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what the allocator keeps for later is nobody's
        with open("/proc/self/status", encoding="ascii") as status:
            memory = next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
        threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("rankwise")]
        return len(threads), len(os.listdir("/proc/self/fd")), memory

    def costs(self):
        """Count threads, those of compiled parts too, and descriptors."""
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    def loaded(self, *modules):
        import sys

        return [name for name in modules if name in sys.modules]


Member = ray.remote(num_cpus=0.5)(Base)


@ray.remote(num_cpus=0.5, max_concurrency=4)
class Threaded(Base):
    """An actor of several threads."""

    def add_up_often(self, name, times):
        tensor = np.ones(1000)
        for _ in range(times):
            tensor[:] = 1
            col.allreduce(tensor, name)
        return float(tensor[0])


@ray.remote(num_cpus=0.5)
class Unaware:
    """An actor that does not import rankwise_ray."""

    def total(self, name):
        tensor = np.ones(3)
        col.allreduce(tensor, name)
        return float(tensor[0])


assert rankwise_ray.BACKEND
