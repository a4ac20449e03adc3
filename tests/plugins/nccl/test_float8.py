"""Whether NCCL reduces float8 here is answered by the table, from the versions that there are."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from rankwise.backends import Why
from rankwise_nccl.plugin import rankwise_backend

TABLE = rankwise_backend().capabilities


@pytest.mark.parametrize(("version", "capability", "has"), [(22304, "90", 0), (22400, "89", 0), (22400, "120", 1)])
def test_the_table_says_yes_where_nccl_and_the_gpu_are_new_enough(version, capability, has, monkeypatch):
    cupy, cuda = ModuleType("cupy"), ModuleType("cupy.cuda")
    cupy.cuda, cuda.nccl = cuda, SimpleNamespace(get_version=lambda: version)
    cuda.Device = lambda: SimpleNamespace(compute_capability=capability)
    for name, module in {"cupy": cupy, "cupy.cuda": cuda, "cupy.cuda.nccl": cuda.nccl}.items():
        monkeypatch.setitem(sys.modules, name, module)
    answer = TABLE.ask("all_reduce", "cuda", "float8_e5m2", "SUM")
    assert bool(answer) is bool(has)
    assert has or (answer.why, "NCCL 2.24" in answer.reason) == (Why.CONDITION, True)
    assert TABLE.supports("broadcast", "cuda", "float8_e5m2")  # moved as bytes
    assert TABLE.supports("all_reduce", "cuda", "bfloat16", "SUM")
