"""The messages of the backend, over each transport."""

from __future__ import annotations

from collections.abc import Callable

import programs
import pytest

from rankwise_testing import RankPool

LEEWAY_S = 1.5


@pytest.mark.parametrize(
    "program",
    [
        programs.big_messages_both_ways,
        programs.small_messages_outlive_their_sender,
        programs.withdraw,
        programs.overlapping_groups,
        programs.several_threads,
        programs.nothing_left,
    ],
    ids=lambda program: program.__name__,
)
def test_what_ranks_do_comes_to_a_good_end(pool: RankPool, program: Callable[[], None]) -> None:
    pool.run(program)


def test_messages_of_one_tag_keep_their_order_and_other_tags_may_overtake(pool: RankPool) -> None:
    _, *rest = pool.run(programs.order_and_tags)
    expected = [[i for i in range(60) if i % 3 == tag] for tag in (2, 0, 1)]
    assert rest == [expected, expected]


@pytest.mark.parametrize(("count", "nbytes"), [(3000, 10), (300, 30_000), (20, 1 << 20), (6, 8 << 20)])
def test_messages_that_nobody_expects_yet_are_kept_within_bounds(pool: RankPool, count: int, nbytes: int) -> None:
    pool.run(programs.many_unexpected, count, nbytes)


@pytest.mark.parametrize("nbytes", [0, 100, 1 << 20, 8 << 20])
def test_a_receive_from_anyone_tells_who_it_was(pool: RankPool, nbytes: int) -> None:
    sources = pool.run(programs.from_anyone, nbytes)[0]
    assert sorted(sources) == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("posted_first", [False, True])
@pytest.mark.parametrize("nbytes", [100, 8 << 20])
def test_a_message_that_is_too_long_fails_with_both_sizes(pool: RankPool, nbytes: int, posted_first: bool) -> None:
    """A small message has left, and its send has ended, before anybody looks at it."""
    sender, receiver, other = pool.run(programs.too_long, nbytes, posted_first)
    assert other is None
    for text in (receiver,) if nbytes < 8 << 20 else (sender, receiver):
        assert f"{nbytes} bytes" in text
        assert f"{nbytes // 2} bytes" in text


def test_a_receive_makes_progress_while_its_caller_computes(pool: RankPool) -> None:
    assert max(pool.run(programs.progress_while_computing)) < LEEWAY_S


def test_a_time_out_names_whom_it_waited_for_and_takes_the_receive_back(pool: RankPool) -> None:
    (message, took), *_ = pool.run(programs.late)
    assert "rank 1" in message
    assert 0.3 <= took < 0.4 + LEEWAY_S


def test_a_mismatch_is_the_same_error_everywhere_and_the_group_goes_on(pool: RankPool) -> None:
    found = pool.run(programs.mismatch)
    assert found[0][1] == (1,)
    assert len(set(found)) == 1


def test_reductions_are_bitwise_the_same_on_all_ranks(pool: RankPool) -> None:
    first, *rest = pool.run(programs.reductions_agree, 1)
    assert all(other == first for other in rest)
