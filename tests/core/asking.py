"""Every public call that needs something of a backend, as its question is asked: first `supports`, then the call."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

import rankwise as dist
from rankwise import ReduceOp
from rankwise.backends import device_kind_named
from rankwise.basics.devices import placed

DTYPES = ("float32", "int8", "bool", "complex64", "M8[s]", "S3")
REDUCE_OPS = ("SUM", "AVG", "MAX", "BAND", "PRODUCT")
#: What a call of each kind may need besides, by the argument that asks for it.
OPTIONS = {"async_op": "async", "async_ops": "async", "timeout": "timeout", "tag": "tags", "src": "any_source"}


class Question(NamedTuple):
    """A call, and what its question says of it."""

    call: str
    dtype: str = "float32"
    reduce_op: str | None = None
    options: tuple[str, ...] = ()
    uneven: bool = False
    device: str = "cpu"

    @property
    def features(self) -> tuple[str, ...]:
        return (*(OPTIONS[option] for option in self.options), *(("uneven",) if self.uneven else ()))


def questions(count: int, seed: int) -> Iterator[Question]:
    """Yield each call in each of its forms, then `count` drawn at random."""
    for call in CALLS:
        takes = _options(call)
        yield Question(call, reduce_op="SUM" if call in REDUCING else None)
        for option in takes:
            yield Question(call, reduce_op="SUM" if call in REDUCING else None, options=(option,))
        if call in UNEVEN:
            yield Question(call, uneven=True)
    draw = random.Random(seed)
    for call in draw.choices(list(CALLS), k=count):
        reduce_op = draw.choice(REDUCE_OPS) if call in REDUCING else None
        options = tuple(option for option in _options(call) if draw.random() < 0.3)
        yield Question(call, draw.choice(DTYPES), reduce_op, options, call in UNEVEN and draw.random() < 0.3)


def answers_that_are_wrong(backend: str, count: int = 0, seed: int = 0, device: str = "cpu") -> list[str]:
    """Ask, call, and tell which answers were wrong; a collective program, on a world of two."""
    wrong = []
    for question in (drawn._replace(device=device) for drawn in questions(count, seed)):
        call, dtype, reduce_op = question[:3]
        says = dist.supports(call, device, dtype, reduce_op, backend, features=question.features)
        if question.uneven and call in ("gather", "scatter") and not says:
            continue  # the root alone sees that the parts differ, and refuses
        if not all(dist.supports(other, device, dtype, backend=backend) for other in PARTNERS.get(call, ())):
            continue  # nobody could answer
        try:
            CALLS[call](question, {option: VALUES[option] for option in question.options})
            works = True
        except dist.UnsupportedOperationError:
            works = False
        if says != works:
            wrong.append(f"{question}: supports says {says}, and the call was {'accepted' if works else 'refused'}")
    return wrong


def asked_of_groups() -> set[str]:
    """Return the public calls that are made on a group, and are no questions about it."""
    return {
        name
        for name in dist.__all__
        if inspect.isroutine(found := getattr(dist, name)) and "group" in inspect.signature(found).parameters
        if not name.startswith("get_")
    } | {"coalescing", "batch_isend_irecv", "split_group", "new_group", "abort_process_group"}


#: What the other rank does meanwhile, without which a call cannot be tried.
PARTNERS = {
    **dict.fromkeys(("recv", "irecv", "probe", "iprobe"), ("send",)),
    **dict.fromkeys(("send", "isend"), ("recv",)),
    **dict.fromkeys(("send_object_list", "recv_object_list"), ("send_object_list", "recv_object_list")),
}
VALUES: dict[str, Any] = {"async_op": True, "async_ops": True, "timeout": 20.0, "tag": 3, "src": None}


def _options(call: str) -> list[str]:
    if call in ("send", "recv", "isend", "irecv", "probe", "iprobe"):
        options = {"send": ("timeout", "tag"), "recv": ("timeout", "tag", "src"), "isend": ("tag",)}
        return list(options.get(call, ("tag", "src")))
    parameters = inspect.signature(getattr(dist, call)).parameters
    # A monitored barrier and a new group take a time-out of their own, by the store.
    if call == "coalescing":
        return ["async_ops"]
    return [o for o in ("async_op", "timeout") if o in parameters and call not in STORED]


def _array(asked: Question, count: int = 2) -> Any:
    return placed(np.zeros(count, asked.dtype), device_kind_named(asked.device))


def _waited(work: Any) -> None:
    if work is not None:
        work.wait()


def _plain(call: str, *args: Callable[[Question], Any], rooted: bool = False) -> Callable[[Question, Any], None]:
    def run(asked: Question, options: dict[str, Any]) -> None:
        given = [arg(asked) for arg in args]
        if asked.reduce_op is not None:
            options = {**options, "op": ReduceOp(asked.reduce_op)}
        _waited(getattr(dist, call)(*given, **({"group_src": 0} if rooted else {}), **options))

    return run


def _parts(asked: Question) -> list[Any]:
    return [_array(asked, 2 + asked.uneven * rank) for rank in range(2)]


def _mine(asked: Question) -> Any:
    return _array(asked, 2 + asked.uneven * dist.get_rank())


def _at_root(make: Callable[[Question], Any]) -> Callable[[Question], Any]:
    return lambda asked: make(asked) if dist.get_rank() == 0 else None


def _on_a_pair(exchange: Callable[..., None]) -> Callable[[Question, Any], None]:
    """Have messages go in a group of their own, so that what a refusal leaves pending meets no later one."""

    def run(asked: Question, options: dict[str, Any]) -> None:
        pair = dist.split_group(split_ranks=[[0, 1]])
        assert pair is not None
        try:
            exchange(asked, options, pair, 1 - dist.get_rank())
        except dist.UnsupportedOperationError:
            dist.abort_process_group(pair)
            raise
        finally:
            with suppress(dist.GroupAbortedError):
                dist.destroy_process_group(pair)

    return run


@_on_a_pair
def _message(asked: Question, options: dict[str, Any], pair: dist.ProcessGroup, peer: int) -> None:
    """Send to the other rank and receive from it, one of the two as the question is, the other plainly."""
    mine, other = _array(asked), _array(asked)
    place = {"group": pair, **({"tag": options["tag"]} if "tag" in options else {})}
    source = {} if "src" in options else {"src": peer}
    timeout = {"timeout": options["timeout"]} if "timeout" in options else {}
    if asked.call == "send":
        receiving = dist.irecv(other, src=peer, **place)
        dist.send(mine, peer, **place, **timeout)
        _waited(receiving)
    else:
        sending = dist.isend(mine, peer, **place)
        if asked.call == "recv":
            dist.recv(other, **source, **place, **timeout)
        else:
            _waited(dist.irecv(other, **source, **place))
        _waited(sending)


@_on_a_pair
def _probe(asked: Question, options: dict[str, Any], pair: dist.ProcessGroup, peer: int) -> None:
    """Look at a message of the other rank's, and receive it."""
    place = {"group": pair, **options}
    sending = dist.isend(_array(asked), peer, group=pair, tag=options.get("tag", 0))
    getattr(dist, asked.call)(**{"src": peer, **place})
    _waited(dist.irecv(_array(asked), **{"src": peer, **place}))
    _waited(sending)


@_on_a_pair
def _batch(asked: Question, options: Any, pair: dist.ProcessGroup, peer: int) -> None:
    ops = [dist.P2POp(op, _array(asked), peer, pair) for op in (dist.isend, dist.irecv)]
    for work in dist.batch_isend_irecv(ops):
        _waited(work)


@_on_a_pair
def _object_message(asked: Question, options: Any, pair: dist.ProcessGroup, peer: int) -> None:
    if dist.get_rank() == 0:
        dist.send_object_list(["a"], peer, pair)
    else:
        dist.recv_object_list([None], peer, pair)


def _group(make: Callable[[], Any]) -> Callable[[Question, Any], None]:
    def run(asked: Question, options: Any) -> None:
        group = make()
        if isinstance(group, dist.ProcessGroup):
            dist.destroy_process_group(group)

    return run


def _aborted() -> None:
    group = dist.split_group(split_ranks=[[0], [1]])
    dist.abort_process_group(group)
    dist.destroy_process_group(group)


def _shrunk() -> Any:
    group = dist.split_group(split_ranks=[[0, 1]])
    assert group is not None
    try:
        survivors = dist.shrink_group([1], group) if dist.get_rank() == 0 else dist.shrink_group([0], group)
        dist.destroy_process_group(survivors)
    finally:
        dist.destroy_process_group(group)


def _coalesced(asked: Question, options: Any) -> None:
    with dist.coalescing(**options) as block:
        pass
    block.wait()


CALLS: dict[str, Callable[[Question, Any], None]] = {
    "broadcast": _plain("broadcast", _array, rooted=True),
    "all_reduce": _plain("all_reduce", _array),
    "reduce": lambda asked, options: _waited(
        dist.reduce(_array(asked), 0, ReduceOp(asked.reduce_op or "SUM"), **options)
    ),
    "gather": _plain("gather", _mine, _at_root(_parts)),
    "scatter": _plain("scatter", _mine, _at_root(_parts)),
    "barrier": lambda asked, options: _waited(dist.barrier(**options)),
    "all_gather": _plain("all_gather", _parts, _mine),
    "all_gather_single": _plain("all_gather_single", lambda asked: _array(asked, 4), _array),
    "all_gather_into_tensor": _plain("all_gather_into_tensor", lambda asked: _array(asked, 4), _array),
    **{
        call: _plain(call, lambda asked: [_parts(asked)], lambda asked: [_array(asked)])
        for call in ("all_gather_coalesced", "all_gather_multigpu")
    },
    "all_reduce_coalesced": _plain("all_reduce_coalesced", lambda asked: [_array(asked), _array(asked)]),
    "all_reduce_multigpu": _plain("all_reduce_multigpu", lambda asked: [_array(asked)]),
    "broadcast_multigpu": _plain("broadcast_multigpu", lambda asked: [_array(asked)], lambda asked: 0),
    "reduce_multigpu": _plain("reduce_multigpu", lambda asked: [_array(asked)], lambda asked: 0),
    "reduce_scatter": _plain("reduce_scatter", _mine, _parts),
    "reduce_scatter_multigpu": _plain(
        "reduce_scatter_multigpu", lambda asked: [_array(asked)], lambda asked: [_parts(asked)]
    ),
    "reduce_scatter_single": _plain("reduce_scatter_single", _array, lambda asked: _array(asked, 4)),
    "reduce_scatter_tensor": _plain("reduce_scatter_tensor", _array, lambda asked: _array(asked, 4)),
    "all_to_all": _plain("all_to_all", lambda asked: [_mine(asked), _mine(asked)], _parts),
    "all_to_all_single": _plain("all_to_all_single", _array, _array),
    **dict.fromkeys(("send", "recv", "isend", "irecv"), _message),
    **dict.fromkeys(("probe", "iprobe"), _probe),
    "batch_isend_irecv": _batch,
    "all_gather_object": lambda asked, options: dist.all_gather_object([None, None], "a"),
    "gather_object": lambda asked, options: dist.gather_object("a", [None, None] if dist.get_rank() == 0 else None),
    "broadcast_object_list": lambda asked, options: dist.broadcast_object_list(["a"], 0),
    "scatter_object_list": lambda asked, options: dist.scatter_object_list(
        [None], ["a", "bb"] if dist.get_rank() == 0 else None
    ),
    **dict.fromkeys(("send_object_list", "recv_object_list"), _object_message),
    "monitored_barrier": lambda asked, options: dist.monitored_barrier(),
    "coalescing": _coalesced,
    "new_group": _group(lambda: dist.new_group([0, 1])),
    "new_subgroups": _group(lambda: dist.new_subgroups(1)[0]),
    "split_group": _group(lambda: dist.split_group(split_ranks=[[0], [1]])),
    "shrink_group": _group(_shrunk),
    "abort_process_group": _group(_aborted),
}
REDUCING = {call for call in CALLS if "reduce" in call}
UNEVEN = {"gather", "scatter", "all_gather", "all_to_all"}
#: Those whose time-out is that of the store.
STORED = {"monitored_barrier", "new_group", "new_subgroups", "split_group"}
