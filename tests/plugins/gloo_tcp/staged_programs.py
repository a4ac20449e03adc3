"""What the ranks of the tests of CuPy arrays run, with the stand-in for CuPy whose arrays lie on the host."""

from __future__ import annotations

import inspect
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
from failing import error_of
from programs import begin, end

import rankwise as dist


def stand_in() -> Any:
    """Return the stand-in, which only the ranks must be able to import."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "fakes"))
    import cupy

    return cupy


def functions(cupy: Any) -> tuple[Any, ...]:
    """Return what is called of CuPy."""
    return cupy.ndarray.get, cupy.ndarray.set, cupy.cuda.Stream.record, cupy.cuda.Stream.wait_event


def signatures() -> list[list[str]]:
    """Return the parameters that the stand-in has."""
    return [list(inspect.signature(function).parameters) for function in functions(stand_in())]


def of_cuda() -> tuple[dict[str, Any], bool]:
    """Return what is told of a collective on CUDA, and whether it is supported."""
    ops = dist.capabilities("gloo").to_dict()["gloo"]["cuda"]["ops"]
    return ops["all_reduce"], dist.supports("all_reduce", "cuda", backend="gloo")


def in_pieces(op: str, count: int) -> None:
    """Reduce or copy more than is on the host at a time."""
    from rankwise.collective import staged

    cupy = stand_in()
    staged.PIECE_NBYTES = 1000  # not a whole number of elements of float64
    rank, size = begin()
    values = np.arange(count, dtype=np.float64)
    array = cupy.asarray(values * (rank + 1))
    if op == "broadcast":
        dist.broadcast(array, src=size - 1)
        wanted = values * size
    else:
        dist.all_reduce(array, dist.ReduceOp.AVG)
        wanted = values * sum(range(1, size + 1)) / size
    assert np.array_equal(array.get(), wanted)
    end()


def behind_the_stream(async_op: bool) -> None:
    """Reduce what the current stream has yet to write, and read it on another stream."""
    cupy = stand_in()
    rank, size = begin()
    stream, opened = cupy.cuda.Stream(non_blocking=True), threading.Event()
    array = cupy.zeros(5, np.float32)
    with stream:
        stream.put(lambda: opened.wait(20))
        array[...] = rank + 1  # behind the gate
        if async_op:
            work: Any = dist.all_reduce(array, async_op=True)
            assert not work.is_completed()
            opened.set()
            work.wait()
        else:
            threading.Timer(0.05, opened.set).start()
            dist.all_reduce(array)
    with cupy.cuda.Stream(non_blocking=True):
        assert array.get().tolist() == [sum(range(1, size + 1))] * 5
    end()


def stuck_stream() -> str:
    """Wait for a stream that does not come to an end, and return the error."""
    cupy = stand_in()
    begin()
    stream, opened = cupy.cuda.Stream(non_blocking=True), threading.Event()
    array = cupy.zeros(5, np.float32)
    try:
        with stream:
            stream.put(lambda: opened.wait(20))
            return str(error_of(lambda: dist.all_reduce(array, timeout=0.3)))
    finally:
        opened.set()
        end()


def host_and_device() -> str:
    """Give an array of the host on rank 0 and ones of the device elsewhere; go on, and return the error."""
    cupy = stand_in()
    rank, size = begin()
    host = np.ones(3, np.float32)
    said = str(error_of(lambda: dist.all_reduce(host if rank == 0 else cupy.asarray(host))))
    array = cupy.asarray(host)
    dist.all_reduce(array)
    assert array.get().tolist() == [size] * 3
    end()
    return said


def kept_alive() -> None:
    """Drop an array while it is being reduced."""
    import gc

    cupy = stand_in()
    begin()
    works = []
    for _ in range(5):
        array = cupy.ones(1000, np.float32)
        works.append(dist.all_reduce(array, async_op=True))
        del array
        gc.collect()
    for work in works:
        assert work is not None
        assert float(work.result().max()) == dist.get_world_size()
    end()
