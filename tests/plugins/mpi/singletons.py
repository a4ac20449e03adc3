"""What a process does that no launcher has started; by reference. MPI is imported there alone."""

from __future__ import annotations

import sys
import types

import numpy as np

import rankwise as dist


def version():
    from mpi4py import MPI

    return MPI.Get_library_version()


def ask():
    bfloat16 = dist.supports("all_reduce", "cpu", "bfloat16", "SUM", backend="mpi")
    cuda = dist.supports("all_reduce", "cuda", backend="mpi")
    return dist.is_mpi_available(), bfloat16, cuda, "mpi4py.MPI" in sys.modules


def unmapped():
    """Return the error classes that only MPI has, that only we have, and that have no name."""
    from mpi4py import MPI

    from rankwise_mpi.library.failures import ERRORS, error_class_name

    ours, theirs = set(ERRORS), {name for name in dir(MPI) if name.startswith("ERR_")} - {"ERR_LASTCODE"}
    unnamed = {name for name in theirs if not error_class_name(getattr(MPI, name)).startswith("ERR_")}
    return theirs - ours, ours - theirs, unnamed


def send_to_nobody():
    from mpi4py import MPI

    from rankwise_mpi.library.failures import translate

    try:
        MPI.COMM_WORLD.Send(b"x", dest=5)
    except MPI.Exception as error:
        return translate(error, "send on 0")


def translated_after_a_death(names):
    """Return what errors of these classes become where rank 3 is known to have died."""
    from mpi4py import MPI

    from rankwise_mpi.library.failures import translate

    errors = [MPI.Exception(getattr(MPI, name)) for name in names]
    return [type(translate(error, "send", (3, "host"))).__name__ for error in errors]


def begin():
    """Return what is said of a world that cannot be, or else its size and a sum."""
    try:
        dist.init_process_group("mpi")
    except dist.DistBackendError as error:
        return str(error)
    array = np.ones(3)
    dist.all_reduce(array)
    size = dist.get_world_size()
    dist.destroy_process_group()
    return size, float(array.sum())


def finish_twice():
    """Return whether a work is done whose end another thread looks at too, and how often it was finished."""
    from rankwise_mpi.group.works import RequestWork

    finished = []
    owner = types.SimpleNamespace(forget=lambda work: None)
    request = types.SimpleNamespace(Test=lambda: True)
    work = RequestWork(owner, "all_reduce", 1.0, request, None, lambda: finished.append(1))

    class EndsMeanwhile(dict):
        def setdefault(self, key, me):
            work._looker = {}
            work.poll()  # as another thread does between the two questions of this one
            return me

    work._looker = EndsMeanwhile()
    return work.poll(), len(finished)
