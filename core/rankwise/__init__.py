"""The communication layer of `torch.distributed` without torch.

Hand arrays of NumPy, or of a device, to collectives and point-to-point calls; the backends that move them are plugins::

    import numpy as np
    import rankwise as dist

    dist.init_process_group("gloo")
    array = np.full(4, dist.get_rank(), np.float32)
    dist.all_reduce(array)
    dist.destroy_process_group()

The names are those of `torch.distributed`; where rankwise decides differently, the documentation says so on one page.
"""

from __future__ import annotations

from typing import Any

from rankwise.backends.backend import (
    Backend,
    BackendConfig,
    availability,
    get_default_backend_for_device,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_mpi_available,
    is_nccl_available,
    register_backend,
)
from rankwise.backends.declaration import API_VERSION, Availability, BackendSpec
from rankwise.basics import reduce_op
from rankwise.basics.arrays import register_array_type
from rankwise.basics.debug import DebugLevel, get_debug_level, set_debug_level, set_debug_level_from_env
from rankwise.basics.loading import later, needs_next
from rankwise.basics.reduce_op import ReduceOp
from rankwise.basics.tracebacks import skip_callers
from rankwise.basics.version import __version__
from rankwise.basics.work import Work
from rankwise.errors import (
    BackendNotFoundError,
    BackendUnavailableError,
    CodecError,
    CollectiveMismatchError,
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    DistTimeoutError,
    ForkedProcessError,
    GroupAbortedError,
    PeerDiedError,
    PeerUnreachableError,
    PluginError,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    ProtocolError,
    QueueEmptyError,
    RendezvousError,
    UnsupportedOperationError,
)

#: Modules for those who bring something of their own, and the errors.
_FACES = ["backends", "binding", "errors", "kits", "launching", "observing", "stores"]
#: All modules of this package are found by their names.
_ROOMS = [*_FACES, "basics", "calls", "cli", "codec", "collective", "groups", "store"]

__all__ = [
    # backends and what they can do
    "API_VERSION",
    "Availability",
    "Backend",
    "BackendConfig",
    "BackendSpec",
    "Communicator",
    "Context",
    "availability",
    "capabilities",
    "get_default_backend_for_device",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_mpi_available",
    "is_nccl_available",
    "register_backend",
    "supports",
    # groups
    "GroupMember",
    "ProcessGroup",
    "SHRINK_ABORT",
    "SHRINK_DEFAULT",
    "abort_process_group",
    "destroy_process_group",
    "get_backend",
    "get_backend_config",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_pg_count",
    "get_process_group_ranks",
    "get_rank",
    "get_reconfigure_handle",
    "get_world_size",
    "group",
    "init_process_group",
    "is_initialized",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "reconfigure",
    "shrink_group",
    "split_group",
    "supports_reconfigure",
    # rendezvous and stores
    "HashStore",
    "PrefixStore",
    "Store",
    "StoreLike",
    "as_store",
    "register_rendezvous_handler",
    "rendezvous",
    # point to point
    "P2POp",
    "Status",
    "batch_isend_irecv",
    "iprobe",
    "irecv",
    "isend",
    "probe",
    "recv",
    "send",
    # collectives
    "ReduceOp",
    "Work",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "coalescing",
    "gather",
    "gather_object",
    "monitored_barrier",
    "recv_object_list",
    "reduce",
    "reduce_op",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "register_array_type",
    "register_dataclass",
    "scatter",
    "scatter_object_list",
    "send_object_list",
    # debugging and launching
    "DebugLevel",
    "get_debug_level",
    "set_debug_level",
    "set_debug_level_from_env",
    "skip_callers",
    # errors
    "BackendNotFoundError",
    "BackendUnavailableError",
    "CodecError",
    "CollectiveMismatchError",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "DistTimeoutError",
    "ForkedProcessError",
    "GroupAbortedError",
    "PeerDiedError",
    "PeerUnreachableError",
    "PluginError",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "ProtocolError",
    "QueueEmptyError",
    "RendezvousError",
    "UnsupportedOperationError",
    "__version__",
]

#: What `dir` does not show, as it has another name, a module of its own, or few who would look for it.
_UNSHOWN = {
    # second names, and those of earlier times
    *("all_gather_coalesced", "all_gather_into_tensor", "all_reduce_coalesced", "get_backend_config", "get_pg_count"),
    *("group", "is_available", "is_gloo_available", "is_mpi_available", "is_nccl_available"),
    *("reduce_op", "reduce_scatter_tensor"),
    *("get_default_backend_for_device", "new_subgroups_by_enumeration", "SHRINK_ABORT", "SHRINK_DEFAULT"),
    # several devices of one process
    *("all_gather_multigpu", "all_reduce_multigpu", "broadcast_multigpu", "reduce_multigpu", "reduce_scatter_multigpu"),
    # `rankwise.backends`
    *("API_VERSION", "Availability", "BackendConfig", "BackendSpec", "Communicator", "Context", "StoreLike"),
    # what `rankwise-arrays` prepares calls by
    "binding",
    # what launchers and libraries use
    *("as_store", "register_rendezvous_handler", "rendezvous", "skip_callers"),
    # what calls return, by its class
    "Status",
    # `rankwise.errors`
    *("BackendNotFoundError", "BackendUnavailableError", "CodecError", "CollectiveMismatchError", "DistBackendError"),
    *("DistNetworkError", "DistStoreError", "ForkedProcessError", "GroupAbortedError", "PluginError"),
    *("ProcessException", "ProcessExitedException", "ProcessRaisedException", "ProtocolError", "QueueEmptyError"),
    *("PeerUnreachableError", "RendezvousError", "UnsupportedOperationError"),
    "TaskError",
    # `rankwise.elastic` uses them for programs
    *("get_reconfigure_handle", "reconfigure", "supports_reconfigure"),
    # what values are sent as
    "register_dataclass",
    # RANKWISE_DEBUG
    *("DebugLevel", "get_debug_level", "set_debug_level", "set_debug_level_from_env"),
}

#: What is loaded with the first name of it that a program asks for: modules of rankwise, and their names.
_LATER = {
    "rankwise.backends.capability_table": ["capabilities", "supports"],
    "rankwise.backends.communicator": ["Communicator"],
    "rankwise.backends.contract": ["Context"],
    "rankwise.basics.messages": ["Status"],
    "rankwise.calls.coalesced": ["all_gather_coalesced", "all_reduce_coalesced", "coalescing"],
    "rankwise.calls.collectives": ["all_reduce", "barrier", "broadcast", "gather", "reduce", "scatter"],
    "rankwise.calls.exchanges": [
        *("all_gather", "all_gather_into_tensor", "all_gather_single", "all_to_all", "all_to_all_single"),
        *("reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor"),
    ],
    "rankwise.calls.monitored": ["monitored_barrier"],
    "rankwise.calls.objects": [
        *("all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list", "register_dataclass"),
        *("scatter_object_list", "send_object_list"),
    ],
    "rankwise.calls.p2p": ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"],
    "rankwise.calls.probing": ["iprobe", "probe"],
    "rankwise.groups.group": ["GroupMember", "ProcessGroup"],
    "rankwise.groups.lifecycle": ["destroy_process_group", "init_process_group", "is_initialized"],
    "rankwise.groups.queries": [
        *("get_backend", "get_backend_config", "get_global_rank", "get_group_rank", "get_node_local_rank"),
        *("get_pg_count", "get_process_group_ranks", "get_rank", "get_world_size"),
    ],
    "rankwise.groups.reconfiguring": ["get_reconfigure_handle", "reconfigure", "supports_reconfigure"],
    "rankwise.groups.subgroups": [
        *("SHRINK_ABORT", "SHRINK_DEFAULT", "abort_process_group", "new_group", "new_subgroups"),
        *("new_subgroups_by_enumeration", "shrink_group", "split_group"),
    ],
    "rankwise.store": ["HashStore", "PrefixStore", "Store", "StoreLike", "as_store"],
    "rankwise.store.rendezvous": ["register_rendezvous_handler", "rendezvous"],
}
#: In which rooms the calls are that nearly all programs make.
_CALLED_FIRST = ("collectives", "exchanges", "p2p")
#: What other distributions bring for names that programs find here.
_BRINGS = {
    "rankwise-arrays": [
        *("TaskError", "as_completed", "channel", "fence", "functional", "grid", "pool", "prepare", "sendrecv"),
        *("share", "shared_empty", "shared_from", "shared_zeros", "split", "wait_all", "wait_any", "wait_some"),
        *("all_gather_multigpu", "all_reduce_multigpu", "broadcast_multigpu", "reduce_multigpu", "world"),
        "reduce_scatter_multigpu",
    ],
    "rankwise-elastic": ["elastic"],
    "rankwise-launch": ["spawn"],
    "rankwise-network": ["secret"],
    "rankwise-stores": ["FileStore", "TCPStore"],
    "rankwise-watch": ["stats"],
}
_BROUGHT = {name: distribution for distribution, names in _BRINGS.items() for name in names}

needs_next(
    __name__,
    {
        **{f"rankwise.calls.{room}": _LATER[f"rankwise.calls.{room}"] for room in _CALLED_FIRST},
        "rankwise.groups.group": _LATER["rankwise.groups.group"],
    },
)
_later = later(__name__, _LATER, {"group": "rankwise.groups.group", **{room: f"rankwise.{room}" for room in _ROOMS}})


def __getattr__(name: str) -> Any:
    if name in _BROUGHT:
        from rankwise.basics.entry_points import part

        return globals().setdefault(name, part(name, _BROUGHT[name]))
    return _later(name)


def __dir__() -> list[str]:
    from rankwise.basics.entry_points import PARTS_GROUP, declared

    there = {name for name, _ in declared(PARTS_GROUP)}
    return [
        name
        for name in [*__all__, *_BROUGHT, *_FACES]
        if name not in _UNSHOWN and (name not in _BROUGHT or name in there)
    ]
