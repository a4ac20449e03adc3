"""Every argument of every call of a group with every odd value, the same on all ranks: all refuse it, or none.

All that refuse it say so in one sentence, which names the call and an argument. Where no rank refuses it, all of them
have made the call, and ended it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from tests.threads import run_local

import rankwise as dist
from rankwise.backends import MAX_TAG
from rankwise.basics.arguments import name_argument, require

PATIENCE_S = 20.0

#: Some are given as what they are on each rank, others are made anew for each call.
ODD: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "a text": lambda: "abc",
    "1": lambda: 1,
    "1.5": lambda: 1.5,
    "-1": lambda: -1,
    "2**70": lambda: 2**70,
    "True": lambda: True,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "an object": object,
    "a tuple": lambda: (1,),
    "a dict": lambda: {"a": 1},
    "an array": lambda: np.ones(3),
    "a matrix": lambda: np.ones((2, 2)),
    "a Fortran matrix": lambda: np.ones((3, 2), order="F"),
    "integers": lambda: [1, 2],
    "a list of None": lambda: [None],
    "bytes": lambda: b"x",
    "a set": lambda: {1},
    "an empty list": list,
    "a NumPy integer": lambda: np.int64(0),
    "a NumPy float": lambda: np.float64(0.5),
    "a range": lambda: range(2),
    "a list of arrays": lambda: [np.ones(3)],
    "a class": lambda: int,
}


def one() -> Any:
    return np.ones(2)


def two() -> list[Any]:
    return [one(), one()]


def at_root(make: Callable[[], Any]) -> Any:
    return make() if dist.get_rank() == 0 else None


def messages() -> list[dist.P2POp]:
    peer = 1 - dist.get_rank()
    return [dist.P2POp(dist.isend, one(), peer), dist.P2POp(dist.irecv, one(), peer)]


#: What makes a right call.
CALLS: dict[str, Callable[[], dict[str, Any]]] = {
    "all_gather": lambda: {"tensor_list": two(), "tensor": one()},
    "all_gather_coalesced": lambda: {"output_tensor_lists": [two()], "input_tensor_list": [one()]},
    "all_gather_multigpu": lambda: {"output_tensor_lists": [two()], "input_tensor_list": [one()]},
    "all_gather_object": lambda: {"object_list": [None, None], "obj": 1},
    "all_gather_single": lambda: {"output_tensor": np.ones(4), "input_tensor": one()},
    "all_reduce": lambda: {"tensor": one()},
    "all_reduce_coalesced": lambda: {"tensors": two()},
    "all_reduce_multigpu": lambda: {"tensor_list": two()},
    "all_to_all": lambda: {"output_tensor_list": two(), "input_tensor_list": two()},
    "all_to_all_single": lambda: {"output": one(), "input": one()},
    "barrier": dict,
    "batch_isend_irecv": lambda: {"p2p_op_list": messages()},
    "broadcast": lambda: {"tensor": one(), "src": 0},
    "broadcast_multigpu": lambda: {"tensor_list": two(), "src": 0},
    "broadcast_object_list": lambda: {"object_list": [1, 2], "src": 0},
    "capabilities": dict,
    "gather": lambda: {"tensor": one(), "gather_list": at_root(two), "dst": 0},
    "gather_object": lambda: {"obj": 1, "object_gather_list": at_root(lambda: [None, None]), "dst": 0},
    "get_global_rank": lambda: {"group": None, "group_rank": 0},
    "get_group_rank": lambda: {"group": None, "global_rank": 0},
    "get_rank": dict,
    "is_backend_available": lambda: {"backend": "gloo"},
    "monitored_barrier": dict,
    "new_group": dict,
    "new_subgroups": lambda: {"group_size": 1},
    "new_subgroups_by_enumeration": lambda: {"ranks_per_subgroup_list": [[0], [1]]},
    "reduce": lambda: {"tensor": one(), "dst": 0},
    "reduce_multigpu": lambda: {"tensor_list": two(), "dst": 0},
    "reduce_scatter": lambda: {"output": one(), "input_list": two()},
    "reduce_scatter_multigpu": lambda: {"output_tensor_list": [one()], "input_tensor_lists": [two()]},
    "reduce_scatter_single": lambda: {"output": one(), "input": np.ones(4)},
    "scatter": lambda: {"tensor": one(), "scatter_list": at_root(two), "src": 0},
    "scatter_object_list": lambda: {
        "scatter_object_output_list": [None],
        "scatter_object_input_list": at_root(lambda: [1, 2]),
        "src": 0,
    },
    "split_group": lambda: {"split_ranks": [[0], [1]]},
    "supports": lambda: {"op": "send", "device": "cpu"},
}

#: What is wrong on some ranks alone, whichever way one looks at it: those that only read may have an array that cannot
#: be written to, and what the root alone gives nobody else can judge.
ON_SOME_RANKS = {
    ("broadcast", "tensor", "bytes"),
    ("reduce", "tensor", "bytes"),
    *((f"{op}_multigpu", place, "2**70") for op, place in (("broadcast", "src_tensor"), ("reduce", "dst_tensor"))),
    *((op, "tensor", odd) for op in ("gather", "scatter") for odd in ODD if odd.endswith(("array", "matrix", "bytes"))),
    *((op, f"{op}_list", odd) for op in ("gather", "scatter") for odd in ("None", "an empty list")),
    *(("gather_object", "object_gather_list", odd) for odd in ("None", "an empty list", "integers")),
    *(("scatter_object_list", "scatter_object_input_list", odd) for odd in ("None", "an empty list", "integers")),
}
#: What sentences call an argument that a call hands on to another.
INNER = ("group", "name", "tensor", "reduce op", "operation", "dtype")


def outcomes(call: str, argument: str, names: list[str]) -> list[tuple[str, str]]:
    """Make a call with each odd value in turn, and return what kind of error each has raised, and its words."""
    return [outcome(call, {**CALLS[call](), argument: ODD[name]()}) for name in names]


def outcome(call: str, given: dict[str, Any]) -> tuple[str, str]:
    try:
        work = getattr(dist, call)(**given)
        if isinstance(work, dist.Work):
            work.wait(PATIENCE_S)
    except dist.BackendNotFoundError:
        return "refused", f"{call}: backend"
    except (TypeError, ValueError, dist.UnsupportedOperationError) as error:
        return "refused", str(error)
    except Exception as error:
        return type(error).__name__, str(error)
    return "made", ""


@pytest.mark.parametrize("call", CALLS)
def test_all_ranks_judge_an_argument_alike(call: str) -> None:
    arguments = list(inspect.signature(getattr(dist, call)).parameters)
    wrong = []
    for argument in arguments:
        names = [odd for odd in ODD if (call, argument, odd) not in ON_SOME_RANKS]
        told = run_local(
            2, lambda argument=argument, names=names: outcomes(call, argument, names), timeout=2 * PATIENCE_S
        )
        for odd, ranks in zip(names, zip(*told, strict=True), strict=True):
            if problem := what_is_wrong(call, [*arguments, *INNER], list(ranks)):
                wrong.append(f"{call}({argument}={odd}) {problem}: {ranks}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("call", CALLS)
def test_an_argument_is_not_judged_by_an_equal_one_before_it(call: str) -> None:
    arguments = list(inspect.signature(getattr(dist, call)).parameters)
    run_local(2, lambda: judged_apart(call, arguments), timeout=2 * PATIENCE_S)


def judged_apart(call: str, arguments: list[str]) -> None:
    """Show that neither True nor 1.0 is taken for the 1 which a call has taken before and may remember."""
    for argument in arguments:
        first, _, after = (
            [outcome(call, {**CALLS[call](), argument: equal})[0] for equal in equals]
            for equals in ((True, 1.0), (1,), (True, 1.0))
        )
        assert after == first, f"{call}({argument}=True or 1.0)"


def what_is_wrong(call: str, arguments: list[str], ranks: list[tuple[str, str]]) -> str:
    kinds = {kind for kind, _ in ranks}
    if kinds == {"made"}:
        return ""
    if kinds != {"refused"}:
        return "is not judged alike" if len(kinds) > 1 else "raises an odd error"
    for _, said in ranks:
        if not said.startswith(call):
            return "does not name the call"
        if not any(argument in said.partition(":")[2] for argument in arguments):
            return "does not name the argument"
        if said.count("\n") or len(said) > 400:
            return "is more than a sentence"
    return ""


def test_the_sentence_names_the_rank_where_it_is_known() -> None:
    def wrong() -> None:
        with pytest.raises(TypeError, match=rf"^broadcast on rank {dist.get_rank()}: src must be an integer rank"):
            dist.broadcast(one(), src="abc")  # type: ignore[arg-type]

    run_local(2, wrong)


@pytest.mark.parametrize(
    ("given", "fits"),
    [(1, True), (0.5, True), (timedelta(1), True), (None, True), (True, False), ("1", False), (one(), False)],
)
def test_a_time_out_of_another_kind_is_refused_by_its_name(given: Any, fits: bool) -> None:
    with nullcontext() if fits else pytest.raises(TypeError, match="timeout must be a number of seconds, a datetime"):
        require(timeout=given)


@pytest.mark.parametrize(
    ("error", "is_renamed"),
    [(TypeError, True), (ValueError, True), (UnicodeError, False), (KeyError, False), (dist.DistStoreError, False)],
)
@pytest.mark.parametrize("is_public", [True, False])
def test_errors_of_public_calls_name_them_if_they_are_of_pythons_own(
    error: type[Exception], is_renamed: bool, is_public: bool
) -> None:
    def call() -> None:
        name_argument(told, sys._getframe())

    def _call() -> None:
        name_argument(told, sys._getframe())

    told = error("deep inside")
    (call if is_public else _call)()
    assert told.args == ("call: deep inside" if is_renamed and is_public else "deep inside",)


@pytest.mark.parametrize(("tag", "travels"), [(0, True), (MAX_TAG, True), (-1, False), (MAX_TAG + 1, False)])
def test_messages_have_any_tag_up_to_the_highest(tag: int, travels: bool) -> None:
    run_local(2, lambda: exchange(tag, travels))


def exchange(tag: int, travels: bool) -> None:
    array = np.full(3, float(dist.get_rank()))
    meet = nullcontext() if travels else pytest.raises(ValueError, match=f"tag is {tag}, but must be from 0")
    with meet:
        dist.recv(array, 0, tag=tag) if dist.get_rank() else dist.send(array, 1, tag=tag)
    assert array[0] == (0 if travels else dist.get_rank())
