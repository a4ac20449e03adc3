"""What engines need that run ranks: secrets of several jobs, nobody at an address, deaths told both ways."""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from tests.processes import free_port
from tests.ranks import pool_of
from tests.threads import on_ranks, within

import rankwise as dist
from rankwise import ProcessGroup, secret
from rankwise_testing import RankPool

pytest.importorskip("rankwise_gloo_tcp", reason="rankwise-gloo-tcp is not installed")

SIZE = 3
TIMEOUT_S = 30.0


pool = pool_of(SIZE)


def me() -> int:
    return int(os.environ["RANK"])


def make(store: Any, name: str = "team", **more: Any) -> ProcessGroup:
    terms = {"rank": me(), "size": SIZE, "backend": "gloo", "timeout": TIMEOUT_S, **more}
    return ProcessGroup.create(store=store, name=name, **terms)


def own_address() -> str:
    """Return an address that a store serves only with a secret, or loopback where this machine has no other."""
    from rankwise_network.interface import outward_address

    return outward_address() or "127.0.0.1"


def two_jobs(secrets: list[bytes], ports: list[int]) -> list[float]:
    """Hold a group of each job at the same time, and use them in turn."""
    assert secret.load() is None or secret.load() not in secrets
    host, sums = own_address(), []
    stores = [dist.TCPStore(host, port, secret=mine) for mine, port in zip(secrets, ports, strict=True)]
    groups = [make(store, f"job {number}") for number, store in enumerate(stores)]
    for factor in (1.0, 2.0):
        for group in groups:
            array = np.full(50_000, factor * (me() + 1))
            dist.all_reduce(array, group=group)
            sums.append(float(array[-1]))
    further = dist.split_group(groups[0], [[0, 1], [2]])
    for group in groups:
        dist.destroy_process_group(group)
    for store in stores:
        store.close()
    return [*sums, 0.0 if further is None else 1.0]


def test_one_process_holds_groups_of_several_jobs(pool: RankPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANKWISE_SECRET_FD", raising=False)
    secrets = [secret.new(), secret.new()]
    with ExitStack() as served:
        serve = [dist.TCPStore(own_address(), is_master=True, secret=mine) for mine in secrets]
        ports = [served.enter_context(store).port for store in serve]
        told = pool.run(two_jobs, [bytes(mine) for mine in secrets], ports)
    assert [sums[:4] for sums in told] == [[6.0, 6.0, 12.0, 12.0]] * SIZE


def refused_by_secret(mine: bytes, port: int) -> str:
    try:
        dist.TCPStore(own_address(), port, secret=mine, timeout=5)
    except dist.DistError as error:
        return str(error)
    return "got in"


def test_a_secret_of_another_job_does_not_let_in(pool: RankPool) -> None:
    with dist.TCPStore(own_address(), is_master=True, secret=secret.new()) as store:
        for text in pool.run(refused_by_secret, bytes(secret.new()), store.port):
            assert "another job secret" in text


def gloo_key_differs(directory: str) -> str:
    """Meet in a store without a secret, with secrets of different jobs: no rank may connect to another."""
    mine = bytes([me()]) * 32
    try:
        group = make(dist.FileStore(f"{directory}/met"), secret=mine, timeout=4)
    except dist.DistError as error:
        return str(error)
    try:
        dist.all_reduce(np.ones(3), group=group)
    except dist.DistError as error:
        return str(error)
    return "got in"


def test_ranks_that_were_given_different_secrets_do_not_connect(pool: RankPool, tmp_path: Any) -> None:
    assert "got in" not in pool.run(gloo_key_differs, str(tmp_path))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_nobody_at_an_address_is_told_at_once(host: str) -> None:
    port = free_port()
    with within(TIMEOUT_S / 2), pytest.raises(dist.DistNetworkError, match="nobody listens there"):
        dist.TCPStore(host, port, wait_for_server=False, timeout=TIMEOUT_S)
    with pytest.raises(dist.DistTimeoutError, match="nobody listens there"):
        dist.TCPStore(host, port, timeout=0.3)


def hear_of_death(port: int, told: int) -> tuple[str, str, float]:
    """Stand in a call that needs rank 2, which lives, until this rank is told that it has died."""
    store = dist.TCPStore("127.0.0.1", port)
    group = make(store)
    dist.barrier(group=group)
    heard: list[str] = []
    failed = threading.Event()
    group.on_failure(lambda error: (heard.append(str(error)), failed.set()))
    error_text, took = "", 0.0
    if me() != 2:
        timer = threading.Timer(0.2, lambda: me() < told and group.report_death(2, "its pod was evicted"))
        timer.start()
        began = time.monotonic()
        try:
            dist.recv(np.empty(3), src=2, group=group)
        except dist.PeerDiedError as error:
            error_text = str(error)
        took = time.monotonic() - began
        assert failed.wait(TIMEOUT_S)
        group.on_failure(lambda error: heard.append(f"late: {error}"))
        timer.join()
    else:
        while store.add("done", 0) < SIZE - 1:
            time.sleep(0.01)
    store.add("done", 1)
    try:
        dist.destroy_process_group(group)
    except dist.DistError:
        assert me() == 2  # whom the others have given up
    return error_text, ";".join(heard), took


@pytest.mark.parametrize("told", [1, 2])
def test_a_death_that_the_engine_knows_of_reaches_the_calls(pool: RankPool, told: int) -> None:
    with dist.TCPStore("127.0.0.1", is_master=True) as store:
        first, second, _ = pool.run(hear_of_death, store.port, told)
    for text, heard, took in (first, second):
        assert text.startswith("rank 2 on ")
        assert text.endswith("is gone: its pod was evicted")
        assert heard == f"{text};late: {text}"
        assert took < TIMEOUT_S / 2


def abort_all(port: int) -> tuple[str, str]:
    store = dist.TCPStore("127.0.0.1", port)
    group = make(store)
    heard: list[str] = []
    failed = threading.Event()
    group.on_failure(lambda error: (heard.append(str(error)), failed.set()))
    if me() == 1:
        group.abort("as its job was cancelled")
    text = ""
    try:
        for _ in range(1_000_000):
            dist.all_reduce(np.ones(3), group=group)
    except dist.GroupAbortedError as error:
        text = str(error)
    assert failed.wait(TIMEOUT_S)
    dist.destroy_process_group(group)
    return text, heard[0]


def test_an_abort_ends_the_calls_of_all_ranks_and_is_told(pool: RankPool) -> None:
    with dist.TCPStore("127.0.0.1", is_master=True) as store:
        for pair in pool.run(abort_all, store.port):
            assert set(pair) == {"group 'team' was aborted on rank 1 as its job was cancelled"}


@on_ranks(2)
def test_only_another_member_can_be_reported() -> None:
    for rank in (dist.get_rank(), 7):
        with pytest.raises(ValueError, match="no other member"):
            dist.group.WORLD.report_death(rank, "?")


@on_ranks(2)
def test_a_report_among_threads_ends_the_group_too() -> None:
    heard: list[dist.DistError] = []
    group = dist.group.WORLD
    group.on_failure(heard.append)
    group.report_death(1 - dist.get_rank(), "its thread is lost")
    with pytest.raises(dist.PeerDiedError, match="its thread is lost"):
        dist.all_reduce(np.ones(3))
    assert len(heard) == 1


def test_secrets_are_made_shown_to_nobody_and_read_again() -> None:
    mine = secret.new()
    assert len(mine) == 32
    assert repr(mine) == str(mine) == "<job secret>"
    assert secret.from_hex(mine.hex()) == mine
    with pytest.raises(ValueError, match="expected 32 bytes"):
        secret.from_hex("abc")
    with pytest.raises(ValueError, match="32 bytes"):
        ProcessGroup.create(rank=0, size=1, name="alone", backend="gloo", secret=b"short")
