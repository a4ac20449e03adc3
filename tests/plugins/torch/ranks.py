"""Runs a function on several ranks: processes that are forked from one that has loaded everything and begun nothing."""

import contextlib
import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from datetime import timedelta

_PRELOADED = """
    pytest torch torch.nn.parallel torch.distributed.fsdp torch.distributed.tensor.parallel rankwise_torch.creation
    rankwise_gloo_tcp.ready rankwise_watch
""".split()
#: What a test may take, on a machine that has much else to do.
LIMIT_S = 90


class RankFailedError(AssertionError):
    """A rank's traceback."""


def run(program, size=2, backend="rankwise", killed=(), **arguments):
    """Return what `program(rank, size, **arguments)` returns on each rank, with a default group on `backend`.

    `killed` ranks are expected to end by a signal; their result is None. Without a backend there is no default group.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(folder, "store")
        pipes, ranks = [], []
        for rank in range(size):
            mine, theirs = context.Pipe(duplex=False)
            job = (program, rank, size, backend, place, arguments, theirs)
            process = context.Process(target=_rank, args=job, daemon=True)
            process.start()
            theirs.close()
            pipes.append(mine)
            ranks.append(process)
        try:
            return _results(pipes, ranks, killed)
        finally:
            for process in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
                process.join()


def _results(pipes, ranks, killed):
    deadline, results, failed = time.monotonic() + LIMIT_S, [], []
    for rank, pipe in enumerate(pipes):
        ok, result = False, f"rank {rank} gave no result within {LIMIT_S} s"
        if failed:
            deadline = min(deadline, time.monotonic() + 5)
        if pipe.poll(max(0, deadline - time.monotonic())):
            try:
                ok, result = pipe.recv()
            except EOFError:
                ok, result = rank in killed, None if rank in killed else f"rank {rank} ended without a result"
        results.append(result)
        if not ok:
            failed.append(f"rank {rank}:\n{result}")
    if failed:
        raise RankFailedError("\n".join(failed))
    return results


def _rank(program, rank, size, backend, place, arguments, pipe):
    import torch
    import torch.distributed as dist

    import rankwise_torch  # noqa: F401 - registers the names

    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        if backend is not None:
            dist.init_process_group(
                backend, init_method=f"file://{place}", rank=rank, world_size=size, timeout=timedelta(seconds=60)
            )
        result = program(rank, size, **({"place": place} if backend is None else {}), **arguments)
        if dist.is_initialized():
            dist.destroy_process_group()
    except BaseException:
        pipe.send((False, traceback.format_exc()))
        os._exit(1)
    pipe.send((True, result))
    pipe.close()
