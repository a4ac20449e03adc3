"""Whatever torch's groups can do, ours can: a new version of torch that adds a method fails this test."""

import subprocess
import sys

import torch.distributed as dist

from rankwise_torch.group import RankwiseGroup
from rankwise_torch.works import Done, Pending, Received

PATIENCE_S = 90.0

#: What ours leave as it is in torch's class, and why that is right.
_INHERITED = {
    "of the class": "BackendType UNDEFINED GLOO NCCL XCCL UCC MPI CUSTOM unbox boxed _pybind11_conduit_v1_ _id",
    "needs no backend": "bound_device_id use_pg_for_symm_mem_rendezvous",
    "would register a backend of C++, of which ours has none": "_register_backend",
    "hands to a newer name": "alltoall_base allgather_into_tensor_coalesced reduce_scatter_tensor_coalesced",
    "is refused by torch's own gloo too": "merge_remote_group _register_on_completion_hook",
}


def test_every_method_is_known():
    """Each is written, or listed above."""
    listed = {name for names in _INHERITED.values() for name in names.split()}
    missing = [
        name
        for name in dir(dist.ProcessGroup)
        if not (name.startswith("__") or name in listed)
        and getattr(RankwiseGroup, name, None) is getattr(dist.ProcessGroup, name)
    ]
    assert not missing, f"methods of torch's groups that ours do not have: {missing}"


def test_what_is_listed_exists():
    """The list does not outlive torch's class."""
    listed = {name for names in _INHERITED.values() for name in names.split()}
    assert listed <= set(dir(dist.ProcessGroup))


def test_works_have_every_method():
    """But for those that are about CUDA, and about who sent a message that is none."""
    listed = set("_pybind11_conduit_v1_ boxed unbox _get_op_type _get_duration get_future_result".split())
    listed |= {"block_current_stream"}
    listed |= {"timeout", "_get_sequence_number"}  # which torch 2.15 asks works of its own for
    for kind, more in ((Pending, set()), (Received, set()), (Done, {"source_rank", "_source_rank"})):
        missing = [
            name
            for name in dir(dist.Work)
            if not (name.startswith("__") or name in listed | more) and getattr(kind, name) is getattr(dist.Work, name)
        ]
        assert not missing, f"{kind.__name__}: {missing}"


def test_a_first_init_loads_no_more_of_torch():
    """What only some calls need of torch, they load: the first init of a process would take 20 ms longer."""
    program = """
        import sys, torch, torch.distributed as dist, rankwise_torch
        before = set(sys.modules)
        dist.init_process_group("rankwise", store=dist.HashStore(), rank=0, world_size=1)
        dist.all_reduce(torch.ones(1))
        print(*(name for name in set(sys.modules) - before if name.partition(".")[0] == "torch"))
    """
    lines = "\n".join(line.strip() for line in program.splitlines())
    found = subprocess.run(
        [sys.executable, "-c", lines], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert found.stdout.split() == []
