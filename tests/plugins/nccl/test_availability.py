"""Why there is no NCCL: five reasons, each with a remedy; and a declaration that needs none of it."""

from __future__ import annotations

import pytest
from tests import fresh
from tests.by_reference import call

from rankwise.backends.capability import Others, require
from rankwise.backends.vocabulary import COLLECTIVES, POINT_TO_POINT
from rankwise.errors import UnsupportedOperationError
from rankwise_nccl.library import availability as module
from rankwise_nccl.library.availability import Facts, availability, judge, look
from rankwise_nccl.library.datatypes import REDUCTIONS, TYPES, reduction
from rankwise_nccl.plugin import rankwise_backend

PATIENCE_S = 60.0
LEEWAY_S = 0.005

GOOD = Facts(True, 1, (12, 4), (("cupy-cuda12x", "14.2.0"),))

REASONS = {
    "driver": (Facts(False), "no NVIDIA driver", "nvidia-driver"),
    "device": (Facts(True, 0, (12, 4)), "no device", "nvidia-smi -L"),
    "cupy": (Facts(True, 1, (12, 4)), "CuPy is not installed", "pip install 'rankwise-nccl[cuda12]'"),
    "mismatch": (
        Facts(True, 1, (12, 4), (("cupy-cuda13x", "14.2.0"),)),
        "is for CUDA 13, but the driver serves CUDA up to 12.4",
        "pip uninstall -y cupy-cuda13x && pip install 'rankwise-nccl[cuda12]'",
    ),
    "nccl": (
        Facts(True, 1, (13, 0), (("cupy-cuda13x", "14.2.0"),), "cannot open shared object file"),
        "finds no NCCL library: cannot open",
        "pip install 'rankwise-nccl[cuda13]'",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_each_reason_is_told_with_the_command_that_fixes_it(name: str) -> None:
    facts, reason, remedy = REASONS[name]
    answer = judge(facts)
    assert not answer
    assert reason in answer.reason
    assert remedy in answer.remedy


def test_the_five_reasons_are_different() -> None:
    assert len({judge(facts).reason for facts, _, _ in REASONS.values()}) == 5


def test_it_is_available_where_all_is_there() -> None:
    assert judge(GOOD)


@pytest.mark.parametrize(
    ("cupy", "reason"),
    [
        ((("cupy-cuda12x", "13.6.0"),), "too old"),
        ((("cupy-cuda12x", "14.2.0"), ("cupy-cuda13x", "14.2.0")), "more than one CuPy"),
    ],
)
def test_a_cupy_that_does_not_fit_is_a_mismatch(cupy: tuple[tuple[str, str], ...], reason: str) -> None:
    answer = judge(Facts(True, 1, (13, 0), cupy))
    assert reason in answer.reason
    assert answer.remedy.startswith("pip uninstall -y cupy-cuda12x")


def test_a_cupy_built_from_source_is_taken_as_fitting() -> None:
    assert judge(Facts(True, 1, (12, 4), (("cupy", "14.2.0"),)))


@pytest.mark.parametrize("visible", ["", "-1", "-1,0"])
def test_devices_hidden_by_the_environment_are_no_devices(visible: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_loads", lambda library: True)
    monkeypatch.setattr(module, "_managed", lambda: (2, (12, 4)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    answer = availability()
    assert "no device" in answer.reason
    assert "unset CUDA_VISIBLE_DEVICES" in answer.remedy


def test_what_this_machine_says_is_one_of_the_reasons_or_yes() -> None:
    answer = judge(look())
    assert answer or (answer.reason and answer.remedy)


def test_the_declaration_imports_nothing_heavy_and_is_quick() -> None:
    runs = [call(fresh.declared, "rankwise_nccl", 1, timeout_s=PATIENCE_S) for _ in range(4)]
    assert not {"cupy", "ml_dtypes", "torch"} & {name for _, modules in runs for name in modules}
    assert min(took_s for took_s, _ in runs) < LEEWAY_S


def test_every_operation_is_native_on_cuda_and_none_is_there_on_the_cpu() -> None:
    table = rankwise_backend().capabilities
    assert set(table.devices) == {"cuda"}
    assert all(table.cell(op, "cuda").support.value == "native" for op in (*POINT_TO_POINT, *COLLECTIVES))


def test_every_reduction_of_the_table_has_a_call_of_nccl() -> None:
    from rankwise.basics.arrays import dtype_name
    from rankwise.basics.reduce_op import ReduceOp

    ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 and float8 come with ml_dtypes")
    import numpy as np

    for op, names in REDUCTIONS.items():
        for name in names:
            dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
            assert dtype_name(dtype) == name
            how = reduction(ReduceOp(op), dtype)
            assert how.width == (2 if "complex" in name else 1)
            assert how.datatype in TYPES.values()


@pytest.mark.parametrize(
    ("op", "dtype"), [("BXOR", "int32"), ("SUM", "int16"), ("AVG", "int32"), ("PRODUCT", "complex64")]
)
def test_what_nccl_does_not_have_is_refused_by_the_table(op: str, dtype: str) -> None:
    import numpy as np

    from rankwise.basics.reduce_op import ReduceOp

    table = rankwise_backend().capabilities
    with pytest.raises(UnsupportedOperationError, match="nccl"):
        require(table, "all_reduce", "cuda", np.dtype(dtype), ReduceOp(op), Others)
