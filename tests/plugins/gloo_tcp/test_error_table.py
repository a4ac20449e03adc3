"""Each row of the table of mistakes in docs/errors.md: it is really made, and all ranks hear what the table says."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from failing import error_of

import rankwise as dist
from rankwise import ReduceOp
from rankwise_testing import RankPool

ERRORS_PAGE = Path(__file__).parents[3] / "docs" / "errors.md"

#: The groups' time-out, which no row but that of the absent rank may come near.
TIMEOUT_S = 30.0
#: Milliseconds where a processor is free; benchmarks/faults.py measures them.
SOON_S = 5.0
#: Long enough for a rank to have sent a heartbeat.
A_BEAT_S = 1.5


class Told(NamedTuple):
    """What a rank has heard: the error's class, text, `odd_ranks` and `rank`, and how long the call took."""

    kind: str
    text: str
    odd: tuple[int, ...] | None
    dead: int | None
    took_s: float


class Row(NamedTuple):
    """What the three ranks do, which of them comes to hear of it, and what of."""

    program: Callable[..., Told | None]
    kind: str
    #: Patterns of the text.
    says: tuple[str, ...]
    hear: tuple[int, ...] = (0, 1, 2)
    doomed: tuple[int, ...] = ()
    #: How often it may be tried: a late rank asks what the others know for 30 ms only, too short on a busy machine.
    trials: int = 1
    arguments: tuple[Any, ...] = ()


# ---------------------------------------------------------------------- what the ranks do


def heard(call: Callable[..., Any], *args: Any, **terms: Any) -> Told:
    begin = time.monotonic()
    error = error_of(lambda: call(*args, **terms))
    odd, dead = getattr(error, "odd_ranks", None), getattr(error, "rank", None)
    return Told(type(error).__name__, str(error), odd, dead, time.monotonic() - begin)


def join() -> int:
    dist.init_process_group("gloo", timeout=TIMEOUT_S)
    return dist.get_rank()


def zeros(*shape: int, dtype: str = "f8") -> Any:
    return np.zeros(shape, dtype)


#: What two of the ranks call, and what rank 1 calls.
DISAGREEMENTS: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "shapes": (lambda: dist.all_reduce(zeros(2, 3)), lambda: dist.all_reduce(zeros(3, 2))),
    "dtypes": (lambda: dist.all_reduce(zeros(4, dtype="f4")), lambda: dist.all_reduce(zeros(4, dtype="i4"))),
    "ops": (lambda: dist.all_reduce(zeros(4)), lambda: dist.all_reduce(zeros(4), ReduceOp.MAX)),
    "roots": (lambda: dist.broadcast(zeros(4), 0), lambda: dist.broadcast(zeros(4), 1)),
    "calls": (lambda: dist.all_reduce(zeros(4)), lambda: dist.broadcast(zeros(4), 0)),
}


def disagree(about: str) -> Told:
    """Make another call on rank 1 than on the others; the group must go on."""
    rank = join()
    told = heard(DISAGREEMENTS[about][rank == 1])
    array = np.full(2, rank)
    dist.all_reduce(array)
    assert array.tolist() == [3, 3]
    dist.destroy_process_group()
    return told


def a_rank_is_absent() -> Told | None:
    rank = join()
    dist.broadcast(np.zeros(1), 0)
    told = None if rank == 2 else heard(dist.all_reduce, np.zeros(1), timeout=A_BEAT_S)
    meet_in_the_store("heard", rank)  # until then rank 2 lives
    dist.destroy_process_group()
    return told


def a_rank_dies() -> Told | None:
    rank = join()
    dist.barrier()
    meet_in_the_store("ready", rank)  # or the barrier of another rank would be what fails
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    told = heard(dist.all_reduce, np.zeros(1))
    dist.destroy_process_group()
    return told


def begin_as(last: int, world_size: int) -> Told:
    """Begin with numbers of which the last rank has others than it should."""
    rank = int(os.environ["RANK"])
    numbers = {"rank": last, "world_size": world_size} if rank == 2 else {"rank": rank, "world_size": 3}
    return heard(dist.init_process_group, "gloo", timeout=TIMEOUT_S, **numbers)


def meet_in_the_store(what: str, rank: int) -> None:
    """Meet without a word to the backend."""
    assert dist.group.WORLD is not None
    store = dist.group.WORLD.get_group_store()
    store.set(f"{what}/{rank}", "yes")
    store.wait([f"{what}/{peer}" for peer in range(3)], timeout=TIMEOUT_S)


# ---------------------------------------------------------------------- the table


def mismatch(about: str, *says: str) -> Row:
    return Row(disagree, "CollectiveMismatchError", says, arguments=(about,))


ROWS = {
    "shapes differ": mismatch("shapes", r"\(2, 3\)", r"\(3, 2\)"),
    "dtypes differ": mismatch("dtypes", "float32", "int32"),
    "`SUM` against `MAX`": mismatch("ops", "SUM", "MAX"),
    "roots differ": mismatch("roots", "root=0", "root=1"),
    "`broadcast` against `all_reduce`": mismatch("calls", "broadcast", "all_reduce"),
    "a rank does not make the call": Row(
        a_rank_is_absent,
        "DistTimeoutError",
        (r"waiting for rank 2, which last finished broadcast #0 at \S+:\d+ and is alive \(\d\.\d s ago\)$",),
        hear=(0, 1),
        trials=5,
    ),
    "a rank dies": Row(
        a_rank_dies,
        "PeerDiedError",
        (r"^rank 2 on \S+ is gone: its process was killed by SIGKILL$",),
        hear=(0, 1),
        doomed=(2,),
    ),
    "two processes claim rank 0": Row(
        begin_as,
        "RendezvousError",
        (r"two processes claim rank 0: rank 0 \(host \S+, pid (\d+)\) and rank 0 \(host \S+, pid (?!\1\b)\d+\)$",),
        arguments=(0, 3),
    ),
    "world sizes disagree": Row(
        begin_as,
        "RendezvousError",
        (
            r"world_size is [34] for rank \d \(host \S+, pid \d+\) but [34] for ",
            r"\b3 for rank [01]\b",
            r"\b4 for rank 2\b",
        ),
        arguments=(2, 4),
    ),
}


@pytest.mark.parametrize("mistake", ROWS)
def test_all_ranks_hear_what_the_table_says(pool: RankPool, mistake: str) -> None:
    row = ROWS[mistake]
    for _ in range(row.trials):
        told = hear(pool, row)
        texts = {one.text for one in told}
        if len(texts) == 1 and all(re.search(pattern, told[0].text) for pattern in row.says):
            return
    raise AssertionError(f"not what the table says, or not the same on all ranks: {told}")


def hear(pool: RankPool, row: Row) -> list[Told]:
    """Make the mistake, check what must hold however busy the machine is, and return what the ranks have heard."""
    found = pool.run(row.program, *row.arguments, doomed=row.doomed)
    told = [one for one in found if one is not None]
    assert [rank for rank, one in enumerate(found) if one is not None] == list(row.hear), found
    assert {one.kind for one in told} == {row.kind}, told
    if row.kind == "CollectiveMismatchError":
        assert {tuple(one.odd or ()) for one in told} == {(1,)}, told
    if row.kind == "DistTimeoutError":
        assert all("waiting for rank 2" in one.text for one in told), told
    if row.doomed:
        assert {one.dead for one in told} == set(row.doomed), told
    limit_s = A_BEAT_S + SOON_S if row.kind == "DistTimeoutError" else SOON_S
    assert max(one.took_s for one in told) < limit_s, told
    return told


def test_the_page_about_errors_has_these_rows_and_no_others() -> None:
    section = ERRORS_PAGE.read_text(encoding="utf-8").partition("\n## Each mistake, and its error\n")[2]
    table = re.findall(r"^\| (.+?) \| `(\w+)`", section.partition("\n## ")[0], re.MULTILINE)
    assert table == [(mistake, row.kind) for mistake, row in ROWS.items()]
