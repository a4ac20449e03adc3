"""What stands in front of the public functions: a program cannot tell it from the function behind it."""

from __future__ import annotations

import copy
import inspect
import pickle
import pydoc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rankwise_gloo_tcp", reason="rankwise-gloo-tcp is not installed")
pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")

import rankwise as dist
from rankwise_native import Front
from rankwise_testing import RankPool

sys.path.insert(0, str(Path(__file__).parent))
import front_programs as programs

TIMEOUT_S = 60.0


@pytest.fixture(scope="module", params=["shm", "tcp"])
def pool(request: pytest.FixtureRequest) -> Iterator[RankPool]:
    with RankPool(3, env={"RANKWISE_GLOO_TRANSPORT": request.param, "RANKWISE_NATIVE": "on"}) as made:
        yield made


def test_however_a_program_says_it_the_call_is_the_same(pool: RankPool) -> None:
    pool.run(programs.said_in_all_ways, timeout=TIMEOUT_S)


def test_messages_go_by_the_ranks_of_the_world_in_every_group(pool: RankPool) -> None:
    pool.run(programs.messages_in_all_ways, timeout=TIMEOUT_S)


@pytest.mark.filterwarnings("ignore:.*not a member:UserWarning")
def test_what_is_wrong_is_refused_in_the_functions_words(pool: RankPool) -> None:
    for here, behind in pool.run(programs.refused_in_both, timeout=TIMEOUT_S):
        assert here == behind
        assert {what for what, text in here if not text.startswith(("TypeError", "ValueError"))} == {"a stranger"}


def test_errors_of_signal_handlers_are_the_programs(pool: RankPool) -> None:
    told, other, _ = pool.run(programs.interrupted_in_both, timeout=TIMEOUT_S)
    for n in range(0, len(told), 2):
        assert (told[n], other[n]) == (told[n + 1], other[n + 1])
        assert told[n][0].partition(": ")[2].strip("'") == "my words"


def test_a_list_may_change_while_its_arrays_are_reduced(pool: RankPool) -> None:
    for by_rank in pool.run(programs.lists_that_change, timeout=TIMEOUT_S):
        assert by_rank == [[1.0, 10.0]] * 6


def test_threads_may_have_worlds_of_their_own(pool: RankPool) -> None:
    assert pool.run(programs.in_worlds_of_their_own, timeout=TIMEOUT_S) == [[6.0, 6.0, 6.0, 3.0]] * 3


FRONTED = pytest.mark.parametrize("name", [name for name in dist.__all__ if isinstance(getattr(dist, name), Front)])


@FRONTED
def test_it_is_a_function_for_whoever_looks(name: str) -> None:
    front: Any = getattr(dist, name)
    behind = front.__wrapped__
    assert inspect.getfullargspec(front) == inspect.getfullargspec(behind)
    assert inspect.signature(front) == inspect.signature(behind)
    assert inspect.isroutine(front)
    assert inspect.getsource(front) == inspect.getsource(behind)
    assert repr(front).startswith(f"<function {behind.__name__} at ")
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__"):
        assert getattr(front, attribute) == getattr(behind, attribute)
    assert str(inspect.signature(behind)) in pydoc.plain(pydoc.render_doc(front)).replace("\n", "")


@FRONTED
def test_it_is_one_and_the_same_wherever_it_comes_from(name: str) -> None:
    front = getattr(dist, name)
    assert pickle.loads(pickle.dumps(front)) is copy.copy(front) is copy.deepcopy(front) is front
    assert type("Caller", (), {"call": front})().call.__func__ is front
    assert type("Caller", (), {"call": front}).call is front


def test_what_cannot_stand_in_front_says_so() -> None:
    from rankwise.calls.fronts import fronted

    def all_reduce(tensor: Any, group: Any = None) -> None:
        """Reduce."""

    def without_group(tensor: Any) -> None:
        """Reduce."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rankwise.calls.fronts.TAKEN", {})
        for function, names in ((all_reduce, ["op"]), (without_group, ["tensor"]), (all_reduce, ["tensor"] * 9)):
            with pytest.raises(TypeError, match="nothing can stand in front"):
                fronted(*names)(function)
