"""The order of streams, the life of buffers, and failures, on a real GPU; skipped where there is none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rankwise_nccl.library.availability import availability

PATIENCE_S = 120.0

_answer = availability()
if not _answer:
    pytest.skip(f"no GPU to test on: {_answer.reason}", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parent))

import gpu_programs as programs  # noqa: E402
from run_all import SHARED  # noqa: E402

from rankwise_testing.harness import RankPool  # noqa: E402

Run = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def pools() -> Iterator[Callable[[int, bool], RankPool]]:
    """Give pools of processes, which are kept for all tests."""
    made: dict[tuple[int, bool], RankPool] = {}

    def pool(size: int, apart: bool) -> RankPool:
        env = {**SHARED, "PYTHONPATH": ":".join(sys.path)}
        if not apart:
            env["NCCL_HOSTID"] = "one-host"
        return made.setdefault((size, apart), RankPool(size, env=env))

    yield pool
    for one in made.values():
        one.close()


@pytest.fixture
def run(pools: Callable[[int, bool], RankPool], tmp_path: Path) -> Run:
    """Run a program on each rank of a world, as if each were a host of its own unless `apart` is false."""

    def start(size: int, program: Callable[..., Any], *args: Any, apart: bool = True) -> list[Any]:
        return pools(size, apart).run(program, f"file://{tmp_path}/world", *args, timeout=PATIENCE_S)

    return start


@pytest.mark.parametrize("size", [1, 2, 3])
def test_nccl_waits_for_the_callers_stream_and_the_other_way_round(run: Run, size: int) -> None:
    wanted = [float(sum(10 + rank + turn for rank in range(size))) for turn in range(20)]
    assert run(size, programs.summed, size) == [wanted] * size


def test_memory_that_nccl_uses_is_not_handed_out_again(run: Run) -> None:
    assert run(2, programs.held, 2) == [True, True]


def test_large_messages_in_a_ring_do_not_dead_lock(run: Run) -> None:
    assert run(3, programs.ring, 3) == [2.0, 0.0, 1.0]


def test_a_time_out_is_the_same_error_on_all_ranks_and_the_processes_live(run: Run) -> None:
    first, second = run(2, programs.disagree, 2)
    assert first == second
    assert first[0] == "DistTimeoutError"
    assert "all_reduce" in first[1]


def test_two_ranks_on_one_gpu_of_one_host_are_told_so(run: Run) -> None:
    for text in run(2, programs.together, 2, apart=False):
        assert "are all on GPU" in text
        assert "a GPU of its own" in text


def test_an_all_reduce_can_be_captured_in_a_graph(run: Run) -> None:
    assert run(1, programs.captured) == [[7.0] * 8]


@pytest.mark.parametrize(("size", "each"), [(1, 1), (2, 1), (1, 2), (1, 4)])
def test_the_calls_for_several_devices_have_every_device_as_a_member(run: Run, size: int, each: int) -> None:
    members = size * each
    total, last = float(sum(range(members))), members - 1.0
    found = run(size, programs.over_devices, size, each)
    if isinstance(found[0], str):
        pytest.skip(found[0])
    for rank, left in enumerate(found):
        own = [float(rank * each + i) for i in range(each)]
        assert left["all_reduce"] == [total] * each
        assert left["average"] == [total / members] * each
        assert left["broadcast"] == [last] * each
        assert left["reduce"] == ([*own[:-1], total] if rank == 0 else own)
        assert left["all_gather"] == [float(member) for member in range(members)]
        assert left["reduce_scatter"] == [members * member for member in own]
