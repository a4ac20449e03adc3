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


_LISTED = {name for names in _INHERITED.values() for name in names.split()}


def left_as_in(theirs, ours, listed):
    """Return what a class of ours has of torch's own, and does not list."""
    names = [name for name in dir(theirs) if not (name.startswith("__") or name in listed)]
    return [name for name in names if getattr(ours, name, None) is getattr(theirs, name)]


def test_every_method_is_known():
    """Each is written, or listed above."""
    assert left_as_in(dist.ProcessGroup, RankwiseGroup, _LISTED) == []


def test_what_is_listed_exists():
    """The list does not outlive torch's class."""
    assert set(dir(dist.ProcessGroup)) >= _LISTED


def test_works_have_every_method():
    """But for those that are about CUDA, and about who sent a message that is none."""
    listed = set("_pybind11_conduit_v1_ boxed unbox _get_op_type _get_duration get_future_result".split())
    listed |= {"block_current_stream"}
    listed |= {"timeout", "_get_sequence_number"}  # which torch 2.15 asks works of its own for
    for kind, more in ((Pending, set()), (Received, set()), (Done, {"source_rank", "_source_rank"})):
        assert left_as_in(dist.Work, kind, listed | more) == [], kind


def test_a_first_init_loads_no_more_of_torch():
    """What only some calls need of torch, they load: the first init of a process would take 20 ms longer."""
    program = (
        "import sys, torch, torch.distributed as dist, rankwise_torch\n"
        "before = set(sys.modules)\n"
        "dist.init_process_group('rankwise', store=dist.HashStore(), rank=0, world_size=1)\n"
        "dist.all_reduce(torch.ones(1))\n"
        "print(*(name for name in set(sys.modules) - before if name.partition('.')[0] == 'torch'))\n"
    )
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert found.stdout.split() == []
