"""CuPy arrays by way of the host. No GPU is needed: the ranks have a stand-in for CuPy, whose streams are threads."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import kit
from tests.by_reference import call
from tests.processes import environment

from rankwise_testing import RankPool

PATIENCE_S = 110.0

HERE = Path(__file__).parent
FAKES = HERE.parents[1] / "fakes"
sys.path.insert(0, str(HERE))
import staged_programs as programs  # noqa: E402


@pytest.fixture(scope="module", params=["tcp", "shm"])
def pool(request: pytest.FixtureRequest) -> Iterator[RankPool]:
    """Three ranks that use one transport."""
    with RankPool(3, env={"RANKWISE_GLOO_TRANSPORT": request.param}) as pool:
        yield pool


@pytest.mark.parametrize("op", ["broadcast", "all_reduce"])
@pytest.mark.parametrize("count", [0, 1, 124, 125, 126, 10_001])
def test_a_large_array_goes_piece_by_piece(pool: RankPool, op: str, count: int) -> None:
    pool.run(programs.in_pieces, op, count)


@pytest.mark.parametrize("async_op", [False, True])
def test_what_the_current_stream_has_to_do_comes_first(pool: RankPool, async_op: bool) -> None:
    pool.run(programs.behind_the_stream, async_op)


def test_a_stream_that_does_not_end_is_not_waited_for_beyond_the_time_out(pool: RankPool) -> None:
    texts = pool.run(programs.stuck_stream)
    assert any("the queue of the caller was not done within 0.3 s" in text for text in texts), texts
    assert "None" not in texts


def test_host_and_device_do_not_mix_and_the_group_lives(pool: RankPool) -> None:
    first, *others = pool.run(programs.host_and_device)
    assert others == [first, first]
    assert "float32 on cuda" in first
    assert "rank 0 called all_reduce(SUM, float32, shape (3,))" in first


def test_arrays_live_until_they_have_been_reduced(pool: RankPool) -> None:
    pool.run(programs.kept_alive)


def test_the_capability_table_is_the_truth_for_cuda(tmp_path: Path) -> None:
    device = ["--backend", "gloo", "--device", "cuda"]
    kit.passes(*device, cwd=tmp_path, timeout_s=PATIENCE_S, env=environment(FAKES))


def test_without_a_device_the_table_says_what_it_depends_on() -> None:
    said, supported = call(programs.of_cuda, timeout_s=PATIENCE_S)
    try:
        import cupy

        here = cupy.cuda.runtime.getDeviceCount() > 0
    except Exception:
        here = False
    assert (said["support"], said["usable"], supported) == ("conditional", here, here)
    assert said["reason"] == "through the host; needs a device 'cuda'"


def test_the_stand_in_has_the_signatures_of_cupy() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed, so that the stand-in cannot be compared with it")
    stand_in = call(programs.signatures, timeout_s=PATIENCE_S)
    for function, names in zip(programs.functions(cupy), stand_in, strict=True):
        told = (function.__doc__ or "").strip().splitlines()[0]
        try:
            words = list(inspect.signature(function).parameters)
        except ValueError:
            words = [part.split("=")[0].split()[-1] for part in told[told.index("(") + 1 : told.rindex(")")].split(",")]
        assert [word for word in words if word != "self"] == [name for name in names if name != "self"], function
