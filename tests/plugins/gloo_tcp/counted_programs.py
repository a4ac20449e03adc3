"""What the ranks of the tests that count Python's calls run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any

import described_calls
import numpy as np
from programs import begin, end
from tests.python_calls import called, fewest, once, unhindered

import rankwise as dist

#: What a public function takes that nothing stands in front of.
IN_PYTHON = 4
TERMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "timeout": {"timeout": 30.0},
    "timeout, int": {"timeout": 30},
    "timeout, timedelta": {"timeout": timedelta(seconds=30)},
    "async_op": {"async_op": True},
    "async_op with timeout": {"async_op": True, "timeout": 30},
}


def collectives(group: Any = None, count: int = 4) -> dict[str, Callable[..., Any]]:
    """Return every collective by its name, on small arrays of its own, each as a function of its terms."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    array, parts = np.ones(count, np.float32), [np.ones(count, np.float32) for _ in range(size)]
    whole, outs = np.ones(count * size, np.float32), [np.empty(count, np.float32) for _ in range(size)]
    target = np.empty_like(whole)
    root = 0 if group is None else dist.get_global_rank(group, 0)
    return {
        "all_reduce": lambda **t: dist.all_reduce(array, dist.ReduceOp.MAX, group, **t),
        "broadcast": lambda **t: dist.broadcast(array, root, group, **t),
        "reduce": lambda **t: dist.reduce(array, root, dist.ReduceOp.MAX, group, **t),
        "all_gather": lambda **t: dist.all_gather(outs, array, group, **t),
        "all_gather_single": lambda **t: dist.all_gather_single(target, array, group, **t),
        "reduce_scatter": lambda **t: dist.reduce_scatter(array, parts, group=group, **t),
        "reduce_scatter_single": lambda **t: dist.reduce_scatter_single(array, whole, group=group, **t),
        "all_to_all": lambda **t: dist.all_to_all(outs, parts, group, **t),
        "all_to_all_single": lambda **t: dist.all_to_all_single(target, whole, group=group, **t),
        "gather": lambda **t: dist.gather(array, None if rank else outs, root, group, **t),
        "scatter": lambda **t: dist.scatter(array, None if rank else parts, root, group, **t),
        "barrier": lambda **t: dist.barrier(group, **t),
    }


def described(group: Any = None) -> dict[str, Callable[..., Any]]:
    """Return likewise collectives that the product has not, but knows by the steps that describe them."""
    array, outs = np.ones(4, np.float32), [np.empty(4, np.float32) for _ in range(dist.get_world_size(group))]
    return {
        "scan": lambda **t: described_calls.scan(array, dist.ReduceOp.MAX, group, **t),
        "told_all": lambda **t: described_calls.told_all(outs, array, group, **t),
        "handed_down": lambda **t: described_calls.handed_down(array, 0, group, **t),
    }


def plainest(most: dict[str, int]) -> dict[str, int]:
    """Do the same with those collectives that every communicator has a fast path for, which is in Python."""
    return everything(most, ("all_reduce", "broadcast", "barrier"))


def everything(most: dict[str, int], names: Sequence[str] = ()) -> dict[str, int]:
    """Return what is over these limits, by the terms, of some or all collectives in the world and in a subgroup."""
    begin(60.0)
    size, over = dist.get_world_size(), {}
    if not names:  # a call has no time-out of its own
        many = [np.ones((1 + each % 3, 2), np.float32) for each in range(50)]
        count = fewest(lambda: dist.all_reduce_coalesced(many, dist.ReduceOp.MAX), most["plain"] + 1) - 1
        if count > most["plain"]:
            over["all_reduce_coalesced"] = count
    for where, group in (("world", None), ("subgroup", dist.new_group(list(range(size))[::-1]))):
        others = described(group)
        made = {**collectives(group), **others}
        for name in names or made:
            call = made[name]
            for terms, known in most.items():
                limit = max(known, IN_PYTHON) if name in others else known
                count = fewest(partial(call, **TERMS[terms]), limit + 1) - 1  # it is a function of Python itself
                if count > limit:
                    over[f"{name}, {terms}, {where}"] = count
    end()
    return over


def messages(most: int, nbytes: int, kept: bool) -> dict[str, int]:
    """Return what is over a limit, of messages that are begun and waited for.

    One rank sends, and says so by way of the store; then the message is there for the other to receive. If it is to be
    kept, the other has taken it in before it receives it, as a thread of the process may have done at any time.
    """
    begin(60.0)
    rank, over = dist.get_rank(), {}
    store = dist.group.WORLD.get_group_store()  # type: ignore[union-attr]
    assert store is not None
    here, there = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    calls: dict[str, Callable[[], Any]] = {
        "isend": lambda: dist.isend(here, 1 - rank),
        "irecv": lambda: dist.irecv(there, 1 - rank),
    }
    for receiver in (0, 1):
        name, found = ("irecv" if rank == receiver else "isend"), []
        for turn in range(30):
            key = f"sent to {receiver}: {turn}"
            if rank == receiver:
                store.get(key)
                if kept:
                    dist.probe(1 - rank)
            found.append(once(calls[name]) - 1)
            if rank != receiver:
                store.set(key, b"")
        if min(found) > most:
            over[f"{name} on rank {rank}"] = min(found)
        assert receiver != rank or there.all()
    dist.barrier()  # the store is here until all have asked it
    end()
    return over


def kept_of_another(most: int) -> dict[str, int]:
    """Return what is over a limit, of messages between two ranks while one has kept those of a third with that tag."""
    begin(60.0)
    rank, array, over = dist.get_rank(), np.ones(8, np.uint8), dict[str, int]()
    store = dist.group.WORLD.get_group_store()  # type: ignore[union-attr]
    assert store is not None
    if rank == 2:
        for _ in range(4):
            dist.send(array, 0)
    elif rank == 0:
        dist.probe(2)
    dist.barrier()
    if rank != 2:
        for receive in (dist.recv, dist.irecv):
            found = []
            for turn in range(30):
                dist.send(array, 1 - rank)
                store.set(f"{receive.__name__} {turn} from {rank}", b"")
                store.get(f"{receive.__name__} {turn} from {1 - rank}")
                found.append(once(partial(receive, array, 1 - rank)))
            if min(found) > most:
                over[receive.__name__] = min(found)
    if rank == 0:
        for _ in range(4):
            dist.recv(array, 2)
    dist.barrier()
    end()
    return over


def posted(most: int, nbytes: int) -> dict[str, int]:
    """Return what is over a limit, of receives that are posted before their messages are sent, and then waited for."""
    begin(60.0)
    rank, found = dist.get_rank(), []
    here, there = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)

    def receive() -> dist.Work | None:
        work = dist.irecv(there, 0)
        dist.send(here, 0)
        return work

    for _ in range(100):
        if rank == 0:
            dist.recv(there, 1)
            dist.send(here, 1)
        else:
            found.append(once(receive) - 1)
    end()
    return {"irecv": min(found)} if rank and min(found) > most else {}


def late(most: int, posted: bool) -> list[int]:
    """Return what is over a limit, of receives whose message leaves only once they sleep."""
    begin(60.0)
    comm = dist.group.WORLD.communicators()[0]  # type: ignore[union-attr]
    rank, array, found = dist.get_rank(), np.zeros(8, np.uint8), []
    asleep = comm.strategy.board.place(1).asleep // 8
    words = comm.strategy.board.sleep()._words

    def receive() -> None:
        if posted:
            dist.irecv(array, 0).wait()  # type: ignore[union-attr]
        else:
            dist.recv(array, 0)

    for turn in range(30):
        dist.barrier()
        if rank == 1:
            found.append(once(receive) - 1)
            assert array[0] == turn
        else:
            array[0] = turn
            until = monotonic() + 1.0
            while not words[asleep] and monotonic() < until:
                pass
            dist.send(array, 1)
    end()
    # Some sleep for so long that Python goes on.
    return [] if rank == 0 or sorted(found)[len(found) // 3] <= most else found


def credited(count: int, nbytes: int) -> set[str]:
    """Return what compiled code asks of Python for want of credit, or to give some, while messages go in turns."""
    begin(60.0)
    rank, array = dist.get_rank(), np.zeros(nbytes, np.uint8)

    def exchange() -> None:
        for _ in range(count):
            if rank == 0:
                dist.send(array, 1)
                dist.recv(array, 1)
            else:
                dist.recv(array, 0)
                dist.send(array, 0)

    seen = {frame.f_code.co_name for frame in called(exchange)}
    end()
    return seen & {"taken", "register_offer"}


def new_sizes() -> dict[str, int]:
    """Return how many functions of Python the first call of a new size calls: the least of many."""
    found = [{name: unhindered(call) for name, call in collectives(None, count).items()} for count in range(5, 35)]
    return {name: min(counts[name] for counts in found) for name in found[0]}


def first_calls() -> tuple[dict[str, int], dict[str, int], set[str]]:
    """Return how many functions of Python first calls call, and which modules all of them load.

    A message is sent before the other receives it, as the store tells.

    Returns:
        The numbers of the first call of each kind; of the first of a new size, the least of many; and the modules.
    """
    begin(60.0)
    store = dist.group.WORLD.get_group_store()  # type: ignore[union-attr]
    assert store is not None
    rank, array, made = dist.get_rank(), np.ones(4, np.float32), collectives()
    messages: dict[str, tuple[int, Callable[[], Any]]] = {
        "send": (0, lambda: dist.send(array, 1)),
        "recv": (1, lambda: dist.recv(array, 0)),
        "isend": (1, lambda: dist.isend(array, 0)),
        "irecv": (0, lambda: dist.irecv(array, 1)),
    }
    store.set(f"ready {rank}", b"")
    store.get(f"ready {1 - rank}")
    before = set(sys.modules)
    found = {"barrier": unhindered(made.pop("barrier"))}
    for name, (whose, call) in messages.items():
        if "send" in name:
            if rank == whose:
                found[name] = unhindered(call)
                store.set(f"{name} is done", b"")
        elif rank == whose:
            store.get(f"{name.replace('recv', 'send')} is done")
            found[name] = unhindered(call)
    found |= {name: unhindered(call) for name, call in made.items()}
    least = new_sizes()
    loaded = set(sys.modules) - before
    dist.barrier()
    end()
    return found, least, loaded
