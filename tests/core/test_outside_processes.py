"""Groups outside of the world over real processes: deaths, ends, records, and stores whose hosts would go."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.core.alien import Alien

import rankwise as dist
from rankwise import ProcessGroup
from rankwise.cli import main
from rankwise_local import register_local
from rankwise_testing import RankPool
from rankwise_tools.recordings.records import load_all

pytest.importorskip("rankwise_gloo_tcp", reason="rankwise-gloo-tcp is not installed")

from tests.by_reference import call
from tests.processes import free_port
from tests.ranks import pool_of
from tests.threads import within

PATIENCE_S = 60.0
LEEWAY_S = 5.0

SIZE = 3


pool = pool_of(SIZE)


def me() -> int:
    return int(os.environ["RANK"])


def make(store: Any, name: str = "team", **more: Any) -> ProcessGroup:
    terms = {"rank": me(), "size": SIZE, "backend": "gloo", "timeout": 30, **more}
    return ProcessGroup.create(store=store, name=name, **terms)


def total(group: ProcessGroup) -> float:
    array = np.ones(3)
    dist.all_reduce(array, group=group)
    return float(array[0])


def lose(path: str) -> str:
    store = Alien(path)
    group = make(store, ranks=[4, 2, 6])
    other = make(store, "others", rank=SIZE - 1 - me())
    assert total(group) == total(other) == 3.0
    if me() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with within(LEEWAY_S), pytest.raises(dist.PeerDiedError) as told:
        dist.barrier(group)
    with pytest.raises(dist.PeerDiedError, match=r"rank 1 on .* is gone: its process was killed by SIGKILL"):
        dist.barrier(other)
    smaller = dist.shrink_group([2], group)
    assert total(smaller) == 2.0
    dist.destroy_process_group(group)
    dist.destroy_process_group(other)
    store.close()
    return str(told.value)


def test_survivors_are_told_who_has_died_by_the_number_they_know(pool: RankPool, tmp_path: Path) -> None:
    texts = pool.run(lose, str(tmp_path / "store"), doomed=[1])
    assert texts[0] == texts[2]
    assert texts[0].startswith("rank 2 on ")
    assert texts[0].endswith("is gone: its process was killed by SIGKILL")


def begin_with_a_broken_host(port: int, kind: str) -> str:
    """Rank 0 serves the store, cannot make the group, and goes at once; the others are still busy."""
    register_local()
    store = dist.TCPStore("127.0.0.1", port, is_master=me() == 0, timeout=20)
    try:
        if kind == "create":
            make(store, options={"algorithms": {"all_reduce": "banana"}} if me() == 0 else None)
        else:
            dist.init_process_group("gloo" if me() else "local", rank=me(), world_size=SIZE, store=store, timeout=20)
    except Exception as error:
        return str(error)
    finally:
        store.close()
    return ""


@pytest.mark.parametrize("kind", ["create", "init"])
def test_a_host_that_serves_a_given_store_stays_until_all_have_heard(pool: RankPool, kind: str) -> None:
    texts = pool.run(begin_with_a_broken_host, free_port(), kind)
    for text in texts:
        assert ("banana" if kind == "create" else "backend is ") in text, texts


def end_without_destroying(path: str, rank: int) -> float:
    store = Alien(path)
    groups = [
        ProcessGroup.create(store=store, rank=rank, size=2, name=name, backend="gloo", timeout=20)
        for name in ("one", "two")
    ]
    vars(sys.modules[__name__])["kept"] = groups
    array = np.full(1000, rank + 1.0)
    if rank == 0:
        dist.send(array, 1, groups[1])
    else:
        time.sleep(0.3)
        dist.recv(array, 0, groups[1])
    return float(array[-1])


def test_a_process_that_ends_without_destroying_it_ends_soon_and_well(tmp_path: Path) -> None:
    with within(4 * LEEWAY_S), ThreadPoolExecutor(2) as threads:
        end = partial(call, end_without_destroying, str(tmp_path / "store"), timeout_s=PATIENCE_S)
        assert list(threads.map(end, range(2))) == [1.0, 1.0]


def record(folder: str, path: str) -> None:
    os.environ["RANKWISE_TRACE_DIR"] = folder
    store = Alien(path)
    dist.init_process_group("gloo", store=store, rank=me(), world_size=SIZE, timeout=20)
    pair = make(store, "tp/pair", rank=1 - me(), size=2) if me() < 2 else None
    ends = make(store, "ends", ranks=[5, 9, 7])
    dist.barrier()
    for group in (pair, ends):
        if group is not None:
            total(group)
    if me() == 0:
        os.kill(os.getpid(), signal.SIGUSR1)
        told = json.loads(Path(folder, "group tp%2Fpair", "rank1.json").read_text())
        assert (told["reason"], told["outside"]) == ("SIGUSR1", {"group": "tp/pair", "ranks": [0, 1]})
    if pair is not None:
        dist.destroy_process_group(pair)
        assert isinstance(signal.getsignal(signal.SIGUSR1), type(signal.getsignal(signal.SIGTERM)))
    dist.destroy_process_group(ends)
    dist.destroy_process_group()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    store.close()
    del os.environ["RANKWISE_TRACE_DIR"]


def test_each_world_has_its_records_and_trace_sees_them_all(
    pool: RankPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "records"
    pool.run(record, str(folder), str(tmp_path / "store"))
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*.json")) == [
        *(f"group ends/rank{rank}.json" for rank in (5, 7, 9)),
        *(f"group tp%2Fpair/rank{rank}.json" for rank in (0, 1)),
        *(f"rank{rank}.json" for rank in range(3)),
    ]
    world, ends, pair = load_all(str(folder))
    for told, place in ((world[0], ("", [0, 1, 2])), (ends[5], ("ends", [5, 9, 7])), (pair[1], ("tp/pair", [0, 1]))):
        assert (told.outside, list(told.ranks)) == place
    assert [op.op for op in ends[9].operations] == ["all_reduce"]
    assert main(["trace", str(folder), "-o", str(tmp_path / "trace.json"), "--analyse"]) == 0
    said = capsys.readouterr().out
    assert "8 operations of 8 ranks" in said
    assert "In the group 'ends', which was made outside of the world:" in said
    assert said.count("All ranks made the same calls") == 3
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert len(names) == 8
    assert sorted(name.partition(" (")[0] for name in names.values()) == sorted(
        [*(f"rank {rank}" for rank in range(3)), *(f"rank {rank} of ends" for rank in (5, 7, 9))]
        + [f"rank {rank} of tp/pair" for rank in range(2)]
    )
