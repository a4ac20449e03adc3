"""The declaration of the backend: what it can do and how to make it, with nothing heavy imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankwise.backends import (
    COLLECTIVES,
    POINT_TO_POINT,
    REDUCTIONS,
    Availability,
    BackendSpec,
    Capabilities,
    DebugLevel,
    Device,
    Runtime,
    conditional,
    derived,
    device_kind_named,
    get_debug_level,
    hookimpl,
    native,
)

if TYPE_CHECKING:
    from rankwise.backends import Communicator, Context

_ASYNC = (
    "by a progress thread where MPI grants MPI_THREAD_MULTIPLE; at a lower level only within wait() and is_completed()"
)
_TIMEOUT = (
    "a collective ends at its time-out until all ranks have come to it; from then on it may be one blocking call of "
    "the library, which all of them make; a rank that waits in MPI_Init_thread for others is ended at the time-out"
)
_ABORT = "the peers are told by messages, and notice in the calls that wait; by MPI_Comm_revoke where there is ULFM"
_MISMATCH = (
    "all calls with RANKWISE_DEBUG=detail, as the group is made; without it synchronous ones of ranks on one host, and "
    "the others end at their time-outs"
)
_MESSAGE_DTYPES = "with RANKWISE_DEBUG=detail, as the group is made; a message of MPI does not tell its dtype"
_SHRINK = "an Open MPI whose mpirun was given --with-ft ulfm"
_RECONFIGURE = "among the processes that one mpiexec has started; without ULFM the death of one is the end of all"
_CUDA = "an MPI library that reports that it is CUDA-aware; rankwise-nccl brings the arrays"

#: What MPI reduces by itself: a user op over NumPy cannot read the memory of a GPU.
_CUDA_FLOATS = frozenset({"float16", "float32", "float64"})
_CUDA_INTEGERS = frozenset(name for name in REDUCTIONS["BAND"] if "int" in name)
#: Some libraries saturate sums of the smaller ones.
_CUDA_SUMS = frozenset(name for name in _CUDA_INTEGERS if name.endswith(("32", "64")))
_CUDA_REDUCTIONS = {
    **{name: _CUDA_SUMS | _CUDA_FLOATS | {"complex64", "complex128"} for name in ("SUM",)},
    **{name: _CUDA_INTEGERS | _CUDA_FLOATS for name in ("PRODUCT",)},
    **{name: _CUDA_INTEGERS for name in ("MIN", "MAX", "BAND", "BOR", "BXOR")},
    **{name: _CUDA_FLOATS | {"complex64", "complex128"} for name in ("AVG", "PREMUL_SUM")},
}


def _detailed() -> bool:
    return get_debug_level() is DebugLevel.DETAIL


def _survives() -> bool:
    from rankwise_mpi.library.ulfm import job_survives_deaths

    return job_survives_deaths()


def _cuda_aware() -> bool:
    from rankwise_mpi.library.cuda import is_cuda_aware

    return device_kind_named("cuda") is not None and is_cuda_aware()


_FEATURES = {
    **native("async", reason=_ASYNC),
    **native("tags", "any_source", "short_messages", "probe", "uneven", "split"),
    **native("timeout", reason=_TIMEOUT),
    **native("abort", reason=_ABORT),
    **conditional("message_dtypes", reason=_MESSAGE_DTYPES, holds=_detailed),
    **conditional("mismatch", reason=_MISMATCH, holds=_detailed),
    **conditional("shrink", reason=_SHRINK, holds=_survives),
    **derived("reconfigure", reason=_RECONFIGURE),
}
_OWN = (
    *("broadcast", "all_reduce", "reduce", "all_gather", "gather"),
    *("scatter", "reduce_scatter", "all_to_all", "barrier"),
)
_CPU = Device({**derived(*COLLECTIVES), **native(*POINT_TO_POINT, *_OWN)}, {**_FEATURES, **derived("sparse")})
_GPU = Device(
    conditional(*POINT_TO_POINT, *_OWN, reason=_CUDA, holds=_cuda_aware, reduce_ops=_CUDA_REDUCTIONS),
    _FEATURES,
)


def _availability() -> Availability:
    from rankwise_mpi.library.availability import availability

    return availability()


def _runtime(timeout_s: float) -> Runtime:
    from rankwise_mpi.process.runtime import runtime

    return runtime(timeout_s)


def _create(context: Context) -> Communicator:
    from rankwise_mpi.creation import create

    return create(context)


@hookimpl
def rankwise_backend() -> BackendSpec:
    """Return the declaration of the backend `mpi`."""
    return BackendSpec(
        name="mpi",
        api_version=1,
        core="0.1",
        capabilities=Capabilities("mpi", {"cpu": _CPU, "cuda": _GPU}),
        create=_create,
        availability=_availability,
        runtime=_runtime,
        launch=("mpiexec", "-n", "{size}"),
        attends=True,
    )
