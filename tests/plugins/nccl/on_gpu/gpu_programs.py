"""What the ranks of the tests on a GPU run. Each is called in a process of its own, which shares the GPU."""

from __future__ import annotations

from typing import Any

import rankwise as dist
from rankwise.errors import DistError

#: Numbers of elements: enough for a kernel to take its time, and for the pool to have use for the memory.
LARGE, SMALL = 1 << 22, 1 << 20


def join(where: str, size: int, rank: int, timeout_s: float = 60.0) -> None:
    """Make the default group."""
    dist.init_process_group("nccl", init_method=where, world_size=size, rank=rank, timeout=timeout_s)


def rank_here() -> int:
    """Return this process's rank as the pool has set it."""
    import os

    return int(os.environ["RANK"])


def summed(where: str, size: int) -> list[float]:
    """Sum what slow kernels of the caller's own stream are still to write, and read it on that stream."""
    import cupy

    join(where, size, rank_here())
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        results = []
        for turn in range(20):
            array = cupy.zeros(LARGE, cupy.float32)
            for _ in range(10):
                array += 1
            array += rank_here() + turn
            dist.all_reduce(array)
            results.append((array * 1).max())
        values = [float(result) for result in results]
    dist.destroy_process_group()
    return values


def held(where: str, size: int) -> bool:
    """Drop arrays while NCCL still uses them, and fill memory that the pool would hand out again."""
    import cupy

    join(where, size, rank_here())
    kept, works = [], []
    for turn in range(50):
        array = cupy.full(SMALL, turn, cupy.float32)
        out = [cupy.empty_like(array) for _ in range(size)]
        works.append(dist.all_gather(out, array, async_op=True))
        kept.append(out)
        del array
        cupy.full(SMALL, -1, cupy.float32)
    for work in works:
        work.wait()
    right = all(bool((part == turn).all()) for turn, out in enumerate(kept) for part in out)
    dist.destroy_process_group()
    return right


def ring(where: str, size: int) -> float:
    """Send to the right before receiving from the left, much and without a batch."""
    import cupy

    join(where, size, rank_here())
    rank = rank_here()
    out, into = cupy.full(LARGE, rank, cupy.float32), cupy.zeros(LARGE, cupy.float32)
    sent = dist.isend(out, (rank + 1) % size)
    received = dist.irecv(into, (rank - 1) % size)
    sent.wait()
    received.wait()
    value = float(into.min())
    dist.destroy_process_group()
    return value


def disagree(where: str, size: int) -> tuple[str, str]:
    """Leave rank 0 alone in a collective until it times out; return the error, and go on living."""
    import cupy

    join(where, size, rank_here())
    array = cupy.ones(4, cupy.float32)
    dist.all_reduce(array)
    try:
        if rank_here() == 0:
            dist.all_reduce(array, async_op=True, timeout=2.0).synchronize()
        else:
            dist.irecv(cupy.ones(4, cupy.float32), 0).synchronize()
    except DistError as error:
        found = type(error).__name__, str(error)
    else:
        found = "no error", ""
    try:
        dist.destroy_process_group()
    except DistError:
        pass
    assert float((cupy.ones(3) * 2).sum()) == 6.0
    return found


def together(where: str, size: int) -> str:
    """Meet as ranks that NCCL must see on one GPU of one host, and return the error."""
    import cupy

    join(where, size, rank_here(), 20.0)
    text = "no error"
    try:
        dist.all_reduce(cupy.ones(4, cupy.float32), async_op=True).synchronize()
    except DistError as error:
        text = str(error)
    try:
        dist.destroy_process_group()
    except DistError:
        pass
    return text


def captured(where: str) -> Any:
    """Capture an all_reduce in a graph, launch it twice, and return what it has left."""
    import cupy

    join(where, 1, 0)
    array = cupy.ones(8, cupy.float32)
    dist.all_reduce(array)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        array *= 2
        dist.all_reduce(array)
        array += 1
        graph = stream.end_capture()
        graph.launch(stream)
        graph.launch(stream)
        values = array.get().tolist()
    dist.destroy_process_group()
    return values


def over_devices(where: str, size: int, each: int) -> dict[str, list[float]] | str:
    """Make each call for several devices per process, with the first `each` devices; return what is left on them.

    Where there are fewer devices, say so.
    """
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < each:
        return f"they need {each} GPUs"
    join(where, size, rank_here())
    first = rank_here() * each

    def arrays(make: Any, count: int = SMALL) -> list[Any]:
        made = []
        for i in range(each):
            with cupy.cuda.Device(i):
                made.append(cupy.full(count, make(first + i), cupy.float32))
        return made

    def rows(make: Any) -> list[list[Any]]:
        return [list(row) for row in zip(*(arrays(lambda _, e=e: make(e)) for e in range(size * each)), strict=True)]

    reduced, averaged, copied = arrays(float), arrays(float), arrays(float)
    rooted, gathered, scattered = arrays(float), rows(lambda _: -1.0), arrays(lambda _: -1.0)
    dist.all_reduce_multigpu(reduced)
    dist.all_reduce_multigpu(averaged, dist.ReduceOp.AVG)
    dist.broadcast_multigpu(copied, size - 1, src_tensor=each - 1)
    dist.reduce_multigpu(rooted, 0, dst_tensor=each - 1)
    dist.all_gather_multigpu(gathered, arrays(float))
    dist.reduce_scatter_multigpu(scattered, rows(float))

    def value(array: Any) -> float:
        with array.device:  # CuPy computes nowhere else
            return float(array.min()) if bool(array.min() == array.max()) else float("nan")

    found = {
        "all_reduce": reduced,
        "average": averaged,
        "broadcast": copied,
        "reduce": rooted,
        "all_gather": gathered[-1],
        "reduce_scatter": scattered,
    }
    left = {name: [value(array) for array in each_array] for name, each_array in found.items()}
    dist.destroy_process_group()
    return left
