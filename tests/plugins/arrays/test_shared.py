"""Arrays in memory that the ranks of a host share."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise_arrays.shared import room
from rankwise_local import local_world
from rankwise_testing import RankPool

HERE = Path(__file__).parent
sys.path[:0] = [each for each in (str(HERE), str(HERE.parents[2])) if each not in sys.path]
import shared_programs as programs  # noqa: E402
from tests.far_away import RANKS_A_HOST  # noqa: E402
from ways import PATIENCE_S, PROCESSES, Ranks, in_world  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory without a name is Linux's")


@pytest.mark.parametrize("size", [1, 2, 4])
def test_arrays_of_any_form_are_shared(ranks: Ranks, size: int) -> None:
    assert ranks.run(size, programs.random_arrays, 100 * size, 30) == [30] * size


@pytest.mark.parametrize("ranks_a_host", [1, 2, 3])
def test_each_host_has_its_own(ranks_a_host: int) -> None:
    with RankPool(4, env={RANKS_A_HOST: str(ranks_a_host)}) as pool:
        assert pool.run(in_world, "gloo", programs.random_arrays, 7, 30, timeout=PATIENCE_S) == [30] * 4


def test_an_array_is_sent_to_each_host_once() -> None:
    nbytes = 9 << 20
    with RankPool(6, env={RANKS_A_HOST: "2"}) as pool:
        told = pool.run(in_world, "gloo", programs.each_host_receives_once, nbytes, timeout=PATIENCE_S)
    assert sum(sent for sent, _, _ in told) == 2 * nbytes
    assert [received for _, received, _ in told] == [0, 0, nbytes, 0, nbytes, 0]
    assert [peers for _, _, peers in told] == [[0, 1], [0, 1], [2, 3], [2, 3], [4, 5], [4, 5]]


def test_it_is_an_array_like_any_other(ranks: Ranks) -> None:
    types = ["SharedArray", "ndarray", "float64", "ndarray"]
    assert ranks.run(2, programs.by_other_ways) == [[3000.0, True, True, *types]] * 2


def test_who_has_no_such_array_is_refused(ranks: Ranks) -> None:
    assert ranks.run(2, programs.peers_that_are_none) == [["ValueError"] * 2] * 2


@pytest.mark.parametrize("way", [way for way in PROCESSES if way != "mpi"])  # whose launcher ends all if one is killed
def test_views_of_a_dead_ranks_array_stay_valid(way: str) -> None:
    backend, env = PROCESSES[way]
    with RankPool(3, env=env) as pool:
        found = pool.run(in_world, backend, programs.a_rank_dies, 1, timeout=PATIENCE_S, doomed=[1])
    for rank in (0, 2):
        assert found[rank] == ([], [100_000, 1, 100_000 * rank, 1], "SharedArray", 0)


def test_nothing_is_left_of_200_rounds(ranks: Ranks) -> None:
    assert ranks.run(2, programs.rounds, 200)[0] == (0, 0)


def test_nothing_is_left_of_failures(ranks: Ranks) -> None:
    assert ranks.run(2, programs.failures_leave_nothing, 20)[0] == (0, 0)


def test_the_last_view_gives_the_memory_back() -> None:
    with RankPool(2) as pool:
        assert pool.run(in_world, "gloo", programs.views_keep_it, timeout=PATIENCE_S) == [[1, 1, 1, 1, 0]] * 2


def test_a_child_process_sees_it() -> None:
    with RankPool(2) as pool:
        assert pool.run(in_world, "gloo", programs.after_a_fork, timeout=PATIENCE_S) == [([7, 8], 1)] * 2


def test_what_the_limits_of_one_rank_forbid_fails_on_all() -> None:
    with RankPool(2) as pool:
        first, second = pool.run(in_world, "gloo", programs.within_limits, timeout=PATIENCE_S)
    assert first == second
    for told, words in zip(first, ("the limit of a file's size", "there is no room among this process's"), strict=True):
        assert re.match(rf"shared_empty: rank 0: \S+ [MG]iB of shared memory: {words}", told)


def test_nobody_can_write_to_what_is_sealed(ranks: Ranks) -> None:
    expected = ["ValueError", "ValueError", "PermissionError"]
    assert ranks.run(2, programs.nobody_writes) == [expected] * 2


def test_a_pickle_is_refused_in_words(ranks: Ranks) -> None:
    for told, copies in ranks.run(2, programs.pickles):
        assert len(told) == 3
        assert all("pickle numpy.array(it), a copy" in each for each in told)
        assert copies == [[0, 0, 0]] * 4


def test_a_group_shares_among_its_own_ranks(ranks: Ranks) -> None:
    told = ranks.run(3, programs.outside)
    assert told == [["shared_from: this rank is not in the group"], [0, 1, 2, 1, 2], [0, 1, 2, 1, 2]]


@pytest.mark.parametrize(
    ("size", "ranks_a_host", "native"),
    [(4, 0, "on"), (4, 0, "off"), (4, 2, "on"), (4, 2, "off"), (2, 0, "{rank}")],  # of two, one is without the compiled
)
def test_what_ranks_have_in_common_comes_out_right(size: int, ranks_a_host: int, native: str) -> None:
    with RankPool(size, env={RANKS_A_HOST: str(ranks_a_host), "RANKWISE_NATIVE": native}) as pool:
        for program in (programs.gathered_in_place, programs.broadcast_in_place):
            pool.run(in_world, "gloo", program, [0, 1, 1000, 700_000, 3_000_000], timeout=PATIENCE_S)
        pool.run(in_world, "gloo", programs.reduced_in_place, [0, 1, 200_001, 700_000], timeout=PATIENCE_S)
        assert pool.run(in_world, "gloo", programs.nothing_is_kept, timeout=PATIENCE_S) == [0] * size


@pytest.mark.parametrize("native", ["on", "off", "{rank}"])
def test_what_ranks_have_in_common_is_not_moved(native: str) -> None:
    with RankPool(2, env={"RANKWISE_NATIVE": native}) as pool:
        head, other = pool.run(in_world, "gloo", programs.touched_by_collectives, timeout=PATIENCE_S)
        reduced = pool.run(in_world, "gloo", programs.touched_by_a_reduction, timeout=PATIENCE_S)
    assert head == [2, 2, 2, 2]  # it has made the memory
    assert other == [1, 1, 1, 2]
    assert all(own == 3 and after > 3 for own, after in reduced)  # which reads and writes a share of the other's


@pytest.mark.parametrize("native", ["on", "off", "{rank}"])
def test_reductions_of_arrays_in_common_that_differ_are_refused(native: str) -> None:
    with RankPool(2, env={"RANKWISE_NATIVE": native}) as pool:
        first, second = pool.run(in_world, "gloo", programs.unlike_reductions, timeout=PATIENCE_S)
    assert first == second
    assert len(first) == 1


@pytest.mark.parametrize(
    ("mistake", "kind", "words"),
    [
        (lambda: dist.shared_empty(3, object), TypeError, "shared_empty: an array of dtype object cannot be shared"),
        (lambda: dist.shared_empty(3, [("a", "f4"), ("b", "O")]), TypeError, "its elements are addresses"),
        (lambda: dist.shared_empty(3, "nonsense"), TypeError, "shared_empty: .*nonsense"),
        (lambda: dist.shared_empty(2.5), TypeError, "shared_empty: "),
        (lambda: dist.shared_empty((2, -1)), ValueError, r"an array of shape \(2, -1\) cannot be"),
        (lambda: dist.shared_zeros(3, copies="node"), ValueError, "shared_zeros: copies='node'; there are"),
        (lambda: dist.shared_from(np.ones(1), 5), ValueError, "shared_from: rank 5 is not in the group"),
        (lambda: dist.shared_from([1]), TypeError, "shared_from: rank 0: list is neither an array nor a number"),
        (
            lambda: dist.shared_empty(1 << 50, "u1"),
            MemoryError,
            r"rank 0: 2 x uint8\[1125899906842624\] would take 2048 TiB of this host, and .* are free",
        ),
        (
            lambda: dist.shared_empty(1 + dist.get_rank()),
            dist.CollectiveMismatchError,
            r"rank 0: float64\[1\], copies='rank'; rank 1: float64\[2\], copies='rank'",
        ),
        (lambda: dist.shared_from(np.ones(1), dist.get_rank()), dist.CollectiveMismatchError, "from rank 1, writeable"),
        (
            lambda: dist.shared_empty(3, object if dist.get_rank() else float),
            TypeError,
            "shared_empty: rank 1: an array of dtype object",
        ),
    ],
)
def test_a_mistake_fails_on_all_ranks(mistake: Any, kind: type[Exception], words: str) -> None:
    def all_say_so() -> None:
        with pytest.raises(kind, match=words):
            mistake()
        assert dist.functional.all_reduce(1) == 2

    with local_world(2, timeout=PATIENCE_S) as world:
        world.run(all_say_so)


def test_a_control_group_bounds_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "memory.max": "1000000",
        "memory.current": "700000",
        "memory.stat": "anon 5\ninactive_file 200000\n",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(room, "_control_groups", lambda: [tmp_path])
    room.check_room(500_000, "it")
    with pytest.raises(MemoryError, match=r"488\.3 KiB are free in this process's control group .*copies='host'"):
        room.check_room(500_001, "it")
    (tmp_path / "memory.max").write_text("max")
    room.check_room(500_001, "it")


@pytest.mark.parametrize("size", [1, 2, 4])
def test_what_ranks_have_in_common_is_not_reduced_in_place(ranks: Ranks, size: int) -> None:
    for told in ranks.run(size, programs.reductions_of_one_array):
        assert len(told) == 6
        assert all("that the ranks of this host have in common" in each for each in told)
