"""Calls that fail, on purpose and in each way that a call can; run by all ranks of a world of three."""

from __future__ import annotations

import os
import pickle
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import far_away
import numpy as np

import rankwise as dist

#: Short, as in compiled calls; and so long that it goes in pieces or from memory to memory.
SIZES = (4, 300_000)
#: The rank that is to blame.
ODD = 2
TIMEOUT_S = 0.6
#: The backend that the calls are made on.
BACKEND = "gloo"
#: More elements than a rank sends to another that has not received them.
_BEYOND_WINDOWS = 1_200_000


class Stop(Exception):
    """What a handler raises."""


def numbers(count: int) -> Any:
    return np.ones(count, np.int64)


def parts(count: int) -> list[Any]:
    return [numbers(count) for _ in range(3)]


Call = Callable[[Any, int], Any]


def at_root(make: Callable[[int], Any], n: int) -> Any:
    """Return what only the root of a call gives or gets."""
    return make(n) if dist.get_rank() == 0 else None


def objects(count: int) -> list[Any]:
    return [numbers(count).tobytes() for _ in range(3)]


#: The functions that make what calls are given.
_MAKERS = {function.__name__ for function in (numbers, parts, objects)}


def coalesced(group: Any, n: int) -> None:
    with dist.coalescing(group):
        dist.all_reduce(numbers(n), group=group)
        dist.broadcast(numbers(n), 0, group)


def sending(group: Any, n: int, send: Callable[..., Any]) -> None:
    """Send to the odd rank, which receives from all others; never so little that it leaves before it is received."""
    if dist.get_rank() != ODD:
        send(numbers(max(n, _BEYOND_WINDOWS)), ODD, group)
        return
    for other in range(ODD):
        dist.recv(numbers(max(n, _BEYOND_WINDOWS)), other, group)


def receiving(group: Any, n: int, receive: Callable[..., Any]) -> None:
    """Receive from the odd rank, which sends to all others."""
    if dist.get_rank() != ODD:
        receive(numbers(n), ODD, group)
        return
    for other in range(ODD):
        dist.send(numbers(n), other, group)


def batch(group: Any, n: int) -> None:
    """Exchange with the odd rank, which exchanges with all others."""
    ops = []
    for peer in range(ODD) if dist.get_rank() == ODD else (ODD,):
        ops += [dist.P2POp(dist.irecv, numbers(n), peer, group), dist.P2POp(dist.isend, numbers(n), peer, group)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def sending_objects(group: Any, n: int) -> None:
    """Send objects to the odd rank, which receives from all others."""
    if dist.get_rank() != ODD:
        dist.send_object_list(objects(max(n, _BEYOND_WINDOWS))[:1], ODD, group)
        return
    for other in range(ODD):
        dist.recv_object_list([None], other, group)


def receiving_objects(group: Any, n: int) -> None:
    """Receive objects from the odd rank, which sends to all others."""
    if dist.get_rank() != ODD:
        dist.recv_object_list([None], ODD, group)
        return
    for other in range(ODD):
        dist.send_object_list(objects(n)[:1], other, group)


#: All that ranks do together, by the names of the public functions and, in front of them, how they are called.
CALLS: dict[str, Call] = {
    "all_reduce": lambda group, n: dist.all_reduce(numbers(n), group=group),
    "broadcast": lambda group, n: dist.broadcast(numbers(n), 0, group),
    "reduce": lambda group, n: dist.reduce(numbers(n), 0, group=group),
    "all_gather": lambda group, n: dist.all_gather(parts(n), numbers(n), group),
    "all_gather_single": lambda group, n: dist.all_gather_single(numbers(3 * n), numbers(n), group),
    "gather": lambda group, n: dist.gather(numbers(n), at_root(parts, n), 0, group),
    "scatter": lambda group, n: dist.scatter(numbers(n), at_root(parts, n), 0, group),
    "reduce_scatter": lambda group, n: dist.reduce_scatter(numbers(n), parts(n), group=group),
    "reduce_scatter_single": lambda group, n: dist.reduce_scatter_single(numbers(n), numbers(3 * n), group=group),
    "all_to_all": lambda group, n: dist.all_to_all(parts(n), parts(n), group),
    "all_to_all_single": lambda group, n: dist.all_to_all_single(numbers(3 * n), numbers(3 * n), group=group),
    "barrier": lambda group, n: dist.barrier(group),
    "monitored_barrier": lambda group, n: dist.monitored_barrier(group),
    "async all_reduce": lambda group, n: dist.all_reduce(numbers(n), group=group, async_op=True).wait(),
    "async all_gather": lambda group, n: dist.all_gather(parts(n), numbers(n), group, async_op=True).wait(),
    "async barrier": lambda group, n: dist.barrier(group, async_op=True).wait(),
    "coalescing": coalesced,
    "all_reduce_coalesced": lambda group, n: dist.all_reduce_coalesced([numbers(n), numbers(1)], group=group),
    "all_gather_coalesced": lambda group, n: dist.all_gather_coalesced([parts(n)], [numbers(n)], group),
    "all_reduce_multigpu": lambda group, n: dist.all_reduce_multigpu([numbers(n), numbers(n)], group=group),
    "broadcast_multigpu": lambda group, n: dist.broadcast_multigpu([numbers(n), numbers(n)], 0, group),
    "reduce_multigpu": lambda group, n: dist.reduce_multigpu([numbers(n), numbers(n)], 0, group=group),
    "all_gather_multigpu": lambda group, n: dist.all_gather_multigpu([parts(n)], [numbers(n)], group),
    "reduce_scatter_multigpu": lambda group, n: dist.reduce_scatter_multigpu([numbers(n)], [parts(n)], group=group),
    "all_gather_object": lambda group, n: dist.all_gather_object([None] * 3, objects(n)[0], group),
    "broadcast_object_list": lambda group, n: dist.broadcast_object_list(objects(n)[:1], 0, group),
    "gather_object": lambda group, n: dist.gather_object(objects(n)[0], at_root(lambda n: [None] * 3, n), 0, group),
    "scatter_object_list": lambda group, n: dist.scatter_object_list([None], at_root(objects, n), 0, group),
    "send": lambda group, n: sending(group, n, dist.send),
    "isend": lambda group, n: sending(group, n, lambda *args: dist.isend(*args).wait()),
    "send_object_list": sending_objects,
    "recv": lambda group, n: receiving(group, n, dist.recv),
    "irecv": lambda group, n: receiving(group, n, lambda *args: dist.irecv(*args).wait()),
    "recv from anyone": lambda group, n: receiving(group, n, lambda array, _, group: dist.recv(array, None, group)),
    "batch_isend_irecv": batch,
    "recv_object_list": receiving_objects,
}
#: Between two ranks each.
MESSAGES = {name for name in CALLS if "send" in name or "recv" in name}
#: What all ranks take part in, so that one alone can be of another opinion.
COLLECTIVES = [name for name in CALLS if name not in MESSAGES]
#: Those that take no array, and so are of one length.
BARRIERS = {name for name in CALLS if "barrier" in name}


def said(call: Callable[[], Any]) -> str:
    """Return how a call ends, in words that are the same each time."""
    try:
        call()
    except Exception as error:
        return plain(f"{type(error).__module__}.{type(error).__name__}: {error}")
    return "nothing"


def plain(text: str) -> str:
    """Leave out of a text what depends on the moment, and on which of some ranks was the first to notice."""
    text = re.sub(r"group-\d+", "group-N", text)
    # What a rank's last heartbeat has told is of another moment each time.
    text = re.sub(r"(, waiting for rank \d).*", r"\1", text)
    text = re.sub(r"; rank \d (is in|has|last finished) [^;]* ago\)", "", text)
    text = re.sub(r"process \d+", "process N", text)
    text = re.sub(r"\.py:\d+", ".py:N", text)
    return re.sub(r"(on group '[\w-]+', rank) [01]\b", r"\1 0 or 1", text)


# ---------------------------------------------------------------------- the failures


def time_out(call: Call, group: Any, count: int) -> str:
    return "" if dist.get_rank() == ODD else said(lambda: call(group, count))


def abort(call: Call, group: Any, count: int) -> str:
    if dist.get_rank() != ODD:
        return said(lambda: call(group, count))
    time.sleep(0.05)  # the others wait by now, or will: both end alike
    group.abort("for a test")
    return said(lambda: call(group, count))


def mismatch(call: Call, group: Any, count: int) -> str:
    other = CALLS["all_reduce" if call in (CALLS["barrier"], CALLS["async barrier"]) else "barrier"]
    return said(lambda: (other if dist.get_rank() == ODD else call)(group, count))


def _is_in_a_call(frame: FrameType | None) -> bool:
    """Tell whether a rank has its arrays and is in the call with them, which may have no frame of its own."""
    names = set()
    while frame is not None and frame.f_code is not said.__code__:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return frame is not None and len(names - {plain.__name__}) > 0 and not names & _MAKERS


def interrupt(call: Call, group: Any, count: int) -> str:
    """The odd rank comes first, and is interrupted while it waits for the others, who come to it afterwards.

    It may have done its part by then: so the others call once more.
    """
    if dist.get_rank() != ODD:
        time.sleep(group.timeout_s / 16)  # longer where the machine is busy
        return said(lambda: (call(group, count), dist.barrier(group)))

    seen = 0

    def handler(number: int, frame: FrameType | None) -> None:
        # It waits once it has been in the call for a while.
        nonlocal seen
        if _is_in_a_call(frame):
            seen += 1
            if seen == 10:
                raise Stop

    old = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.03, 0.01)
    first = said(lambda: call(group, count))
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)
    return said(lambda: call(group, count)) if first.endswith("Stop: ") else first


def refused(call: Call, group: Any, count: int) -> str:
    """Each array is one that no call takes."""
    global numbers
    whole, texts = numbers, []
    for wrong in (lambda n: [1] * n, lambda n: np.empty(n, object)):
        numbers = wrong  # type: ignore[assignment]
        try:
            texts.append(said(lambda: call(group, count)))
        finally:
            numbers = whole
    return " / ".join(texts)


def destroyed(call: Call, group: Any, count: int) -> str:
    dist.destroy_process_group(group)
    return said(lambda: call(group, count))


def fork(call: Call, group: Any, count: int) -> str:
    """In the child of a fork nothing is to be had of the group."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, said(lambda: call(group, count)).encode()[:60000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(pid, 0)
    return text


FAILURES: dict[str, Callable[[Call, Any, int], str]] = {
    "time-out": time_out,
    "abort": abort,
    "mismatch": mismatch,
    "interrupt": interrupt,
    "refused argument": refused,
    "destroyed group": destroyed,
    "fork": fork,
}
DEATH = "death"
#: Failures that concern all members alike.
SHARED = ("time-out", "abort", "mismatch", "death")

#: What a failure cannot come in. A `monitored_barrier` goes by the store, where no other call is seen; of a message
#: there is no other opinion; and of objects only what the root gives can be refused, for which the others wait.
_WITHOUT = {
    "mismatch": {*MESSAGES, "monitored_barrier"},
    "interrupt": {*MESSAGES, *(name for name in CALLS if name.startswith("async"))},
    "refused argument": {*BARRIERS, *(name for name in CALLS if "object" in name)},
}
#: Failures that come before anything moves, or whatever moves.
_OF_ONE_SIZE = ("fork", "refused argument", "destroyed group", DEATH)

Cell = tuple[str, str, str, int]


def cells(wanted: str = "") -> list[Cell]:
    """Return what there is to try: failure, call, whether the call was made before, and the length."""
    found = [
        (failure, call, phase, count)
        for failure in (*FAILURES, DEATH)
        for call in CALLS
        if call not in _WITHOUT.get(failure, ())
        for phase in ("first", "warm")
        for count in SIZES
        if count == SIZES[0] or not (call in BARRIERS or failure in _OF_ONE_SIZE)
    ]
    words = [word for word in wanted.split(",") if word]
    return [cell for cell in found if not words or any(word in key(cell) for word in words)]


def key(cell: Cell) -> str:
    return " ".join(map(str, cell))


def _prepared(cell: Cell, slower: float) -> tuple[Call, Any, int]:
    failure, name, phase, count = cell
    group = dist.new_group(timeout=20 * slower)
    if phase == "warm":
        for _ in range(3):
            CALLS[name](group, count)
        dist.barrier()
    group.set_timeout(slower * (TIMEOUT_S if failure == "time-out" else 8.0))
    return CALLS[name], group, count


def all_of(listed: list[Cell], slower: float) -> list[str]:
    """Make calls fail, one after the other, and return how each has ended on this rank."""
    far_away.pretend()
    dist.init_process_group(BACKEND, timeout=60 * slower)
    found = []
    for cell in listed:
        call, group, count = _prepared(cell, slower)
        found.append(FAILURES[cell[0]](call, group, count))
        dist.barrier()
        if cell[0] != "destroyed group":
            dist.destroy_process_group(group)
    dist.destroy_process_group()
    return found


def die(cell: Cell, folder: str, slower: float) -> None:
    """Have the odd rank's process end while the others are in a call, and write down how that ends on them."""
    far_away.pretend()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(BACKEND, f"file://{folder}/meet", rank=rank, world_size=size, timeout=60 * slower)
    call, group, count = _prepared(cell, slower)
    Path(folder, f"prepared-{rank}").touch()
    if rank == ODD:
        deadline = time.monotonic() + 20 * slower
        while len(list(Path(folder).glob("prepared-*"))) < size and time.monotonic() < deadline:
            time.sleep(0.001)  # the last call that has ended here may not have ended on all
        os._exit(3)
    text = said(lambda: call(group, count))
    temporary = Path(folder, f"{rank}.new")
    temporary.write_bytes(pickle.dumps(text))
    temporary.rename(Path(folder, str(rank)))
    time.sleep(0.5)
