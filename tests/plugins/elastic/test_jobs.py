"""Jobs of real processes that are shot, stopped and joined; each process checks all its sums and steps itself."""

from __future__ import annotations

import random
import signal

import pytest
from elastic_company import PATIENCE_S, Company


def test_ranks_begin_in_the_order_in_which_they_were_numbered() -> None:
    with Company(3) as job:
        epochs = [member.hear_epoch(3) for member in job.members]
        assert [(epoch["number"], epoch["rank"]) for epoch in epochs] == [(1, 0), (1, 1), (1, 2)]
        job.finish()
        ends = [member.hear_end() for member in job.members]
        assert len({end["steps"] for end in ends}) == 1


@pytest.mark.parametrize("shot", [[0], [1], [2], [0, 2], [3, 1]], ids=str)
def test_survivors_go_on_in_their_order(shot: list[int]) -> None:
    with Company(4) as job:
        for member in job.members:
            member.hear_epoch(4)
        for rank in shot:
            job.members[rank].send(signal.SIGKILL)
        left = [member for rank, member in enumerate(job.members) if rank not in shot]
        epochs = [member.hear_epoch(4 - len(shot)) for member in left]
        assert [epoch["rank"] for epoch in epochs] == list(range(len(left)))
        assert len({epoch["number"] for epoch in epochs}) == 1
        gone = {rank: why for epoch in epochs for rank, _, why in epoch["left"]}
        assert set(gone) <= set(shot)
        assert all("killed" in why or "ended" in why for why in gone.values()), gone
        job.finish()
        assert len({member.hear_end()["steps"] for member in left}) == 1


def test_a_newcomer_gets_the_state_and_nothing_is_lost() -> None:
    with Company(2, count=3_000_000) as job:
        for member in job.members:
            member.hear_epoch(2)
        newcomer = job.start()
        joined = newcomer.hear_epoch(3)
        assert (joined["rank"], joined["step"] > 0) == (2, True)
        before = [member.hear_epoch(3) for member in job.members]
        assert {epoch["step"] for epoch in before} == {joined["step"]}
        assert [each["joined"] for each in before] == [joined["joined"]] * 2
        job.finish()
        assert len({member.hear_end()["commits"] for member in job.all}) == 1


def test_one_is_shot_and_another_comes_in_its_place() -> None:
    with Company(3) as job:
        for member in job.members:
            member.hear_epoch(3)
        job.members[1].send(signal.SIGKILL)
        job.start(1).hear_epoch(3)
        job.finish()
        assert len({job.all[index].hear_end()["steps"] for index in (0, 2, 3)}) == 1


def test_too_few_wait_for_others() -> None:
    with Company(2, min_size=2) as job:
        for member in job.members:
            member.hear_epoch(2)
        job.members[0].send(signal.SIGKILL)
        job.start()
        assert job.members[1].hear_epoch(2)["rank"] == 0
        job.finish()
        assert len({job.all[index].hear_end()["steps"] for index in (1, 2)}) == 1


def test_too_many_wait_until_there_is_room() -> None:
    with Company(2, max_size=2) as job:
        for member in job.members:
            member.hear_epoch(2)
        waiting = job.start()
        job.members[0].send(signal.SIGKILL)
        assert waiting.hear_epoch(2)["rank"] == 1
        job.finish()
        assert len({job.all[index].hear_end()["steps"] for index in (1, 2)}) == 1


def test_who_was_stopped_for_long_comes_back_as_a_newcomer() -> None:
    with Company(3, patience=1.0, wait_s=0.2) as job:
        for member in job.members:
            member.hear_epoch(3)
        job.members[0].send(signal.SIGSTOP)
        for member in job.members[1:]:
            member.hear_epoch(2)
        job.members[0].send(signal.SIGCONT)
        assert job.members[0].hear_epoch(3)["rank"] == 2
        job.finish()
        assert len({member.hear_end()["steps"] for member in job.members}) == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_newcomer_that_dies_while_it_comes_is_missed_by_nobody(seed: int) -> None:
    draw = random.Random(seed)
    with Company(2) as job:
        for member in job.members:
            member.hear_epoch(2)
        for _ in range(3):
            newcomer = job.start()
            newcomer.live_for(draw.uniform(0.1, 0.8))
        job.start().hear_epoch(3)
        job.finish()
        assert len({member.hear_end()["steps"] for member in (*job.members, job.all[-1])}) == 1


def test_a_mistake_of_the_program_is_not_tried_again() -> None:
    with Company(3) as job:
        for member in job.members:
            member.hear_epoch(3)
        clumsy = job.start(raises_after=30)
        for member in job.members:
            member.hear_epoch(4)
        assert clumsy.process.wait(PATIENCE_S) == 1
        for member in job.members:
            member.hear_epoch(3)
        job.finish()
        assert len({member.hear_end()["steps"] for member in job.members}) == 1


def test_a_rank_that_is_given_notice_leaves_at_a_commit_and_is_not_waited_for() -> None:
    with Company(3, notice=30, tells=True) as job:
        for member in job.members:
            member.hear_epoch(3)
        leaver, *others = job.members
        leaver.send(signal.SIGTERM)
        assert 25 < leaver.hear(lambda word: "noticed" in word)["noticed"] <= 30
        assert leaver.process.wait(PATIENCE_S) == 75
        epochs = [member.hear_epoch(2) for member in others]
        leaver.hear_all()
        done = max(word["committed"] for word in leaver.said if "committed" in word)
        assert {epoch["step"] for epoch in epochs} == {done}, "a step is lost, or was made without the rank"
        assert all(epoch["left"][0][2] == "it left after a notice" for epoch in epochs), epochs
        job.finish()
        assert len({member.hear_end()["steps"] for member in others}) == 1


def test_who_comes_when_all_is_done_ends_at_once() -> None:
    with Company(2) as job:
        for member in job.members:
            member.hear_epoch(2)
        job.finish()
        for member in job.members:
            member.hear_end()
        late = job.start()
        late.hear(lambda word: "imported" in word)
        assert late.process.wait(PATIENCE_S) == 0
        late.hear_all()
        assert not any("size" in word for word in late.said), late.said
