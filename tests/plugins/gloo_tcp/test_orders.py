"""Messages of unusual sizes, orders, dtypes and ends, over each transport."""

from __future__ import annotations

from collections.abc import Iterator

import order_programs
import pytest

from rankwise.basics import native
from rankwise_gloo_tcp.protocol.flow import MESSAGE_NBYTES, WINDOW_NBYTES
from rankwise_testing import RankPool, run_ranks

LEEWAY_S = 1.0

TCP = {"RANKWISE_GLOO_TRANSPORT": "tcp"}
MIB = 1 << 20
#: Both sides of where messages begin to be offered, cut, or read from their sender's memory.
EDGES = sorted({size + more for size in (128 << 10, 512 << 10, MIB) for more in (-1, 0, 1)})


@pytest.fixture(scope="module", params=["tcp", "shm", "auto"])
def pool(request: pytest.FixtureRequest) -> Iterator[RankPool]:
    with RankPool(3, env={"RANKWISE_GLOO_TRANSPORT": request.param, "PYTHONFAULTHANDLER": "1"}) as pool:
        yield pool


@pytest.mark.parametrize(
    "sizes",
    [
        [1, WINDOW_NBYTES],
        [1_000_000, 3_200_000],
        [MIB - 1, 3 * MIB + 2],
        [MIB - 1, 3 * MIB + 1],
        [MIB - MESSAGE_NBYTES - 1, WINDOW_NBYTES - MIB + 1, 1],
        [WINDOW_NBYTES - MESSAGE_NBYTES + more for more in (-1, 0, 1)],
        [0, *EDGES, 0],
    ],
    ids=str,
)
def test_no_sizes_stand_still(pool: RankPool, sizes: list[int]) -> None:
    pool.run(order_programs.one_after_the_other, sizes)


@pytest.mark.parametrize(("count", "nbytes"), [(4, 1_040_000), (5, 1_200_000), (1024, 4), (2000, 0), (3, 5 * MIB)])
def test_a_tag_overtakes_all_that_waits(pool: RankPool, count: int, nbytes: int) -> None:
    pool.run(order_programs.last_tag_first, count, nbytes)


@pytest.mark.parametrize("sizes", [[0, 1, 100, 5_000], [8, 70_000, 140_000], [100, 600_000, 1_300_000]], ids=str)
def test_receives_from_anyone_and_from_one_rank_go_by_each_sender_s_order(pool: RankPool, sizes: list[int]) -> None:
    for seed in range(3):
        pool.run(order_programs.from_anyone, seed, sizes)


def test_nobody_starves_beside_a_rank_that_sends_without_end(pool: RankPool) -> None:
    pool.run(order_programs.nobody_starves)


@pytest.mark.skipif(native.module() is None, reason=f"turned off by {native.VARIABLE}")
def test_compiled_messages_serve_receives_from_anyone_and_each_sender_in_turn() -> None:
    found = run_ranks(order_programs.are_served_by_a_shortcut, 3, 4)[0]
    assert [{*pair} for pair in zip(found[::2], found[1::2], strict=True)] == [{1, 2}] * 4


@pytest.mark.parametrize(("count", "nbytes"), [(5, 2_000_000), (600, 10_000), (3, 0), (9, 600_000)])
def test_what_was_issued_before_destroy_is_there_afterwards(pool: RankPool, count: int, nbytes: int) -> None:
    assert pool.run(order_programs.late_receiver, count, nbytes)[1] < LEEWAY_S  # the time-out is 30 s


@pytest.mark.parametrize("posted_first", [False, True])
@pytest.mark.parametrize("count", [4, 20_000, 600_000])
def test_a_message_of_another_dtype_is_refused(pool: RankPool, count: int, posted_first: bool) -> None:
    said = pool.run(order_programs.other_dtype, count, posted_first)[1]
    assert "int64" in said
    assert "float64" in said


@pytest.mark.parametrize("size", [5, 9])
def test_bytes_stay_as_they_are_and_inputs_may_be_read_only(size: int) -> None:
    run_ranks(order_programs.unusual_layouts, size, env=TCP)


@pytest.mark.parametrize("size", [2, 3])
def test_factors_find_room_for_what_they_make_of_the_data(size: int) -> None:
    edges = [256 << 10, 512 << 10] if size == 2 else [64 << 10, 128 << 10, 256 << 10]
    run_ranks(order_programs.factors, size, edges, env=TCP)


def test_thousands_of_receives_do_not_make_others_slow(pool: RankPool) -> None:
    few, many, most = pool.run(order_programs.one_among_many, (5, 5_000, 20_000), 150)[0]
    assert many < 4 * few + 300e-6
    assert most < 4 * few + 300e-6
