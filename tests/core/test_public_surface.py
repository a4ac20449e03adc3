"""The public surface: every name that is promised exists, is documented and is typed."""

import inspect

import pytest

import rankwise as dist
from rankwise import ReduceOp, Work, errors

FUNCTIONS = """
register_backend get_default_backend_for_device is_available is_backend_available availability
is_gloo_available is_mpi_available is_nccl_available capabilities supports
init_process_group destroy_process_group is_initialized new_group split_group new_subgroups
new_subgroups_by_enumeration get_rank get_world_size get_backend get_backend_config get_group_rank get_global_rank
get_process_group_ranks get_node_local_rank abort_process_group shrink_group
rendezvous register_rendezvous_handler
send recv isend irecv batch_isend_irecv
broadcast all_reduce reduce all_gather gather scatter reduce_scatter all_to_all all_to_all_single barrier
monitored_barrier all_gather_single reduce_scatter_single all_gather_into_tensor reduce_scatter_tensor
all_reduce_coalesced all_gather_coalesced coalescing
all_gather_object gather_object broadcast_object_list scatter_object_list send_object_list recv_object_list
broadcast_multigpu all_reduce_multigpu reduce_multigpu all_gather_multigpu reduce_scatter_multigpu
get_debug_level set_debug_level spawn
""".split()

CLASSES = {
    "Backend": "register_backend GLOO NCCL MPI UNDEFINED default_device_backend_map backend_capability backend_list",
    "BackendConfig": "device_backend_map get_device_backend_map",
    "ProcessGroup": "rank size name ranks backend timeout abort",
    "GroupMember": "NON_GROUP_MEMBER WORLD",
    "Store": """set get add check wait compare_set append multi_get multi_set delete_key num_keys list_keys queue_push
        queue_pop queue_len set_timeout timeout clone barrier""",
    "TCPStore": "get",
    "FileStore": "get",
    "HashStore": "get",
    "PrefixStore": "get",
    "P2POp": "",
    "ReduceOp": "SUM PRODUCT MIN MAX AVG BAND BOR BXOR PREMUL_SUM",
    "Work": """wait is_completed is_success exception result get_future source_rank synchronize add_done_callback
        __await__""",
    "Communicator": "isend irecv close abort",
    "BackendSpec": "",
    "Context": "plain",
}

ERRORS = {
    "DistError": RuntimeError,
    "DistBackendError": dist.DistError,
    "DistNetworkError": dist.DistError,
    "DistStoreError": dist.DistError,
    "QueueEmptyError": dist.DistStoreError,
    "DistTimeoutError": TimeoutError,
    "PeerDiedError": dist.DistError,
    "PeerUnreachableError": dist.PeerDiedError,
    "CollectiveMismatchError": dist.DistError,
    "GroupAbortedError": dist.DistError,
    "BackendNotFoundError": ValueError,
    "BackendUnavailableError": dist.DistError,
    "UnsupportedOperationError": NotImplementedError,
    "PluginError": dist.DistError,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_exists_is_documented_and_typed(name):
    function = getattr(dist, name)
    assert name in {*dist.__all__, *vars(dist)["_BROUGHT"]}
    assert inspect.getdoc(function)
    plain = inspect.unwrap(function)
    parameters = [p for p in inspect.signature(plain).parameters.values() if p.name not in ("cls", "self")]
    assert all(p.annotation is not inspect.Parameter.empty for p in parameters)
    assert inspect.signature(plain).return_annotation is not inspect.Signature.empty


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_exists_with_its_members(name):
    cls = getattr(dist, name)
    assert name in {*dist.__all__, *vars(dist)["_BROUGHT"]}
    assert inspect.getdoc(cls)
    missing = [member for member in CLASSES[name].split() if not hasattr(cls, member)]
    instance_attributes = {"name", "ranks", "device_backend_map"}
    assert not set(missing) - instance_attributes


@pytest.mark.parametrize(("name", "base"), ERRORS.items())
def test_every_error_exists_in_its_place_in_the_tree(name, base):
    error = getattr(dist, name)
    assert issubclass(error, base)
    assert issubclass(error, dist.DistError)
    assert name in errors.__doc__


def test_all_is_what_is_there():
    assert len(dist.__all__) == len(set(dist.__all__))
    assert all(hasattr(dist, name) for name in dist.__all__)


def test_every_public_member_of_the_public_classes_is_documented():
    bare = [
        f"{name}.{member}"
        for name in CLASSES
        for member, value in vars(getattr(dist, name)).items()
        if not member.startswith("_") and callable(value) and not isinstance(value, (ReduceOp, type))
        if not inspect.getdoc(value)
    ]
    assert bare == []


def test_work_is_a_protocol_that_the_core_s_works_fulfil():
    from rankwise.basics.work import BoundWork, CompletedWork, FutureWork

    for kind in (FutureWork(), CompletedWork(), BoundWork(FutureWork(), None, ())):
        assert isinstance(kind, Work)


def test_torch_s_deprecated_names_warn():
    with pytest.warns(FutureWarning, match="ReduceOp.SUM"):
        assert dist.reduce_op.SUM is ReduceOp.SUM
    with pytest.raises(AttributeError):
        _ = dist.reduce_op.NONSENSE
    with pytest.raises(AttributeError):
        _ = dist.no_such_name


def test_reduce_ops_print_and_compare():
    assert repr(ReduceOp.SUM) == "ReduceOp.SUM"
    assert ReduceOp.PREMUL_SUM(2.0) == ReduceOp.PREMUL_SUM(2.0) != ReduceOp.PREMUL_SUM(3.0)
    assert len({ReduceOp.SUM, ReduceOp("SUM"), ReduceOp.MAX}) == 2


def test_peer_died_carries_rank_host_and_cause():
    error = dist.PeerDiedError(2, "node7", "killed by SIGKILL")
    assert (error.rank, error.host, error.cause) == (2, "node7", "killed by SIGKILL")
    assert str(error) == "rank 2 on node7 is gone: killed by SIGKILL"
    silent = dist.PeerUnreachableError(2, "node7", "no heartbeat for 20 s")
    assert str(silent) == "rank 2 on node7 is unreachable: no heartbeat for 20 s"
