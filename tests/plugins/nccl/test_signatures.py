"""The double and the plugin's binding have the signatures of CuPy, so that what is said to one can be said to all."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from ranks import Rank

from rankwise_nccl.library import binding, failures
from rankwise_nccl.library.datatypes import TYPES

cupy = pytest.importorskip("cupy", reason="CuPy is not installed, so that the double cannot be compared with it")
nccl = pytest.importorskip("cupy.cuda.nccl", reason="this CuPy has no binding of NCCL")

METHODS = [
    *("allReduce", "reduce", "broadcast", "allGather", "reduceScatter", "send", "recv"),
    *("abort", "destroy", "check_async_error"),  # and finalize, which CuPy has not
]


def needs_library() -> None:
    if not nccl.available:
        pytest.skip("CuPy finds no NCCL library: pip install nvidia-nccl-cu12")


def real() -> binding.Nccl:
    """Return the binding, with the library that CuPy has loaded."""
    nccl.get_version()
    return binding.Nccl(binding.load())


def said(documented: Any) -> list[str]:
    """Return the parameters that the first line of a docstring gives, as compiled functions have no signature."""
    inside = re.search(r"\((.*)\)", documented.__doc__.strip().splitlines()[0])
    assert inside is not None
    words = [part.split("=")[0].split()[-1] for part in inside[1].split(",") if part.strip()]
    return [word for word in words if word != "self"]


def ours(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


@pytest.mark.parametrize("name", METHODS)
def test_the_communicators_methods(name: str) -> None:
    needs_library()
    double = Rank().api.nccl.NcclCommunicator
    theirs = said(getattr(nccl.NcclCommunicator, name))
    assert ours(getattr(double, name)) == ours(getattr(binding.NcclCommunicator, name)) == theirs


def test_making_a_communicator() -> None:
    needs_library()
    made = ours(Rank().api.nccl.NcclCommunicator.__init__)
    assert [*made, "config"] == said(nccl.NcclCommunicator)
    assert made == ours(binding.Nccl.NcclCommunicator)


@pytest.mark.parametrize("name", ["groupStart", "groupEnd", "get_unique_id"])
def test_the_functions_of_the_module(name: str) -> None:
    needs_library()
    assert ours(getattr(Rank().api.nccl, name)) == ours(getattr(binding.Nccl, name)) == said(getattr(nccl, name))


def test_the_unique_id_is_bytes() -> None:
    needs_library()
    made = [api.get_unique_id() for api in (nccl, Rank().api.nccl, real())]
    assert [(type(one), len(one)) for one in made] == [(bytes, 128)] * 3


def test_the_binding_finds_every_function_that_it_uses() -> None:
    needs_library()
    assert real().get_version() == nccl.get_version()
    real().groupStart()
    real().groupEnd()


def test_a_communicator_that_cannot_be_made_says_what_nccl_says_last() -> None:
    needs_library()
    if cupy.cuda.runtime.eventQuery(0) != 35:  # cudaErrorInsufficientDriver
        pytest.skip("there is a driver, so that one can be made")
    with pytest.raises(binding.NcclError, match=r"UNHANDLED_CUDA_ERROR.*driver version is insufficient") as caught:
        real().NcclCommunicator(1, real().get_unique_id(), 0)
    assert caught.value.status == 1


def test_streams_events_and_devices() -> None:
    double = Rank().api.cuda
    cuda = cupy.cuda
    assert ours(double.Event) == ours(cuda.Event)
    assert set(ours(double.Stream)) == {"null", "non_blocking", "ptds"} <= set(ours(cuda.Stream))
    assert ours(double.Device) == said(cuda.Device)
    assert ours(double.get_current_stream) == said(cuda.get_current_stream)
    assert ours(double.Stream.wait_event) == said(cuda.Stream.wait_event)
    assert ours(double.Event.record) == ours(cuda.Event.record)
    for name in ("is_capturing", "synchronize", "__enter__", "__exit__"):
        assert callable(getattr(cuda.Stream, name))
    assert isinstance(inspect.getattr_static(cuda.Event, "done"), (property, type(cuda.Event.done)))
    assert hasattr(cuda.Device, "compute_capability")


def test_the_runtime() -> None:
    double, runtime = Rank().api.cuda.runtime, cupy.cuda.runtime
    for name in ("memcpyAsync", "deviceGetPCIBusId", "getDevice", "eventQuery"):
        assert ours(getattr(double, name)) == said(getattr(runtime, name)) or name == "getDevice"
    assert "cudaErrorIllegalAddress" in str(runtime.CUDARuntimeError(700))
    assert double.memcpyDeviceToDevice == runtime.memcpyDeviceToDevice


def test_the_numbers_of_the_types_are_those_that_cupy_has_names_for() -> None:
    needs_library()
    for name, number in TYPES.items():
        if "float8" not in name:
            assert getattr(nccl, f"NCCL_{name.upper()}") == number


def test_every_result_that_cupy_knows_has_a_hint() -> None:
    needs_library()
    for status in range(1, 7):
        assert any(word in str(nccl.NcclError(status)) for word in failures.HINTS)
        assert binding.NAMES[status] in str(nccl.NcclError(status))


def test_the_op_with_a_factor_is_found_in_the_library_that_cupy_has_loaded() -> None:
    needs_library()
    from rankwise_nccl.library import premul

    nccl.get_version()
    assert premul.is_there()
