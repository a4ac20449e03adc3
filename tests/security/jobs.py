"""A job of several ranks over sockets, each of which has variables of its own, and what becomes of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
from tests.by_reference import command, returned

import rankwise as dist
from rankwise_network import secret


def job(
    folder: Path,
    variables: Sequence[Mapping[str, str]],
    timeout_s: float,
    has_secret: bool = True,
    lacking: Collection[int] = (),
) -> list[object]:
    """Run a rank for each of these variables, and return what each has said."""
    common = {**os.environ, "RANKWISE_GLOO_TRANSPORT": "tcp"}
    if has_secret:
        secret.new_file(folder / "secret")
        common["RANKWISE_SECRET_FILE"] = str(folder / "secret")
    ranks = [
        subprocess.Popen(
            command(_say, f"file://{folder / 'meet'}", rank, len(variables), rank in lacking),
            env={**common, **own},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, own in enumerate(variables)
    ]
    try:
        return [returned(rank.communicate(timeout=timeout_s)[0]) for rank in ranks]
    finally:
        for process in ranks:
            process.kill()


def _say(meet: str, rank: int, size: int, lacks: bool) -> str:
    """Say "well" when all sorts of calls have gone well, or else what is wrong."""
    if lacks:
        sys.modules["cryptography"] = None  # type: ignore[assignment]
    try:
        dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=size, timeout=30)
        _calls(rank, size)
        dist.destroy_process_group()
    except (dist.DistError, ValueError) as error:
        return f"{type(error).__name__} {error}"
    return "well"


def _calls(rank: int, size: int) -> None:
    for count in (1, 3, 1000, 400_000):
        for _ in range(5):
            array = np.full(count, 1.0 + rank)
            dist.all_reduce(array)
            assert (array == sum(range(1, size + 1))).all()
    rooms = [np.zeros(10) for _ in range(50)]
    works = [dist.irecv(room, (rank - 1) % size, tag=tag) for tag, room in enumerate(rooms)]
    works += [dist.isend(np.full(10, float(tag)), (rank + 1) % size, tag=tag) for tag in range(50)]
    for work in works:
        work.wait()
    assert all((room == tag).all() for tag, room in enumerate(rooms))
    found: list[str] = [""] * size
    dist.all_gather_object(found, "x" * 300_000 + str(rank))
    assert [text[-1] for text in found] == [str(peer) for peer in range(size)]
    dist.barrier()
