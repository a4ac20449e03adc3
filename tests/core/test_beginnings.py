"""A beginning that fails: every rank hears why, whichever found out, and however late it comes to ask."""

import dataclasses
import os
import threading
import time
from unittest.mock import patch

import pytest
from tests.processes import wait_until
from tests.ranks import begin, pool_of, use_mesh

import rankwise as dist
from rankwise.backends import Communicator
from rankwise.backends.registry import registry
from rankwise.groups import making
from rankwise_network import secret
from rankwise_stores.tcp.connection import Connection
from rankwise_testing import RankPool

SIZE = 3
TIMEOUT_S = 30.0
LEEWAY_S = 8.0


pool = pool_of(SIZE)


def with_variables(address, variables):
    """Begin where one rank has other variables than the others."""
    with patch.dict(os.environ, variables.get(int(os.environ["RANK"]), {})):
        return begin("gloo", address, 20)


@pytest.mark.parametrize("odd", range(SIZE))
@pytest.mark.parametrize(
    ("variable", "value"), [("RANKWISE_SOCKET_IFNAME", "nope0"), ("RANKWISE_GLOO_TRANSPORT", "carrier pigeon")]
)
def test_a_wrong_variable_on_one_rank_is_no_death(pool, tcp_address, odd, variable, value):
    ends = pool.run(with_variables, tcp_address, {odd: {variable: value}}, timeout=2 * TIMEOUT_S)
    for rank, (kind, text, took_s) in enumerate(ends):
        assert f"{variable}={value}" in text
        assert "is gone" not in text
        assert took_s < LEEWAY_S
        assert kind == ("ValueError" if rank == odd else "DistBackendError")
        assert rank == odd or f"rank {odd}: ValueError" in text


@pytest.mark.parametrize("odd", range(SIZE))
@pytest.mark.parametrize("name", ["TRANSPORT", "INTEGRITY"])
def test_contradictory_settings_are_told_to_all(pool, address, odd, name):
    values = {"TRANSPORT": ("tcp", "auto"), "INTEGRITY": ("header", "full")}[name]
    variables = {
        rank: {"RANKWISE_GLOO_TRANSPORT": "tcp", f"RANKWISE_GLOO_{name}": values[rank == odd]} for rank in range(SIZE)
    }
    ends = pool.run(with_variables, address, variables, timeout=2 * TIMEOUT_S)
    for _, text, took_s in ends:
        assert f"RANKWISE_GLOO_{name}" in text
        assert took_s < LEEWAY_S


class Idle(Communicator):
    """A communicator that has nothing to give back."""

    def isend(self, *terms):
        """Never called."""

    irecv = abort = close = isend


def late_and_broken(address, broken, late_s):
    """Begin with a backend that fails at once on one rank, and takes its time on the others."""
    rank = int(os.environ["RANK"])
    use_mesh()
    real = registry.get("mesh")

    def create(context):
        if rank == broken:
            raise ValueError("MESH_WIDTH=banana is no number")
        until = time.monotonic() + late_s
        while time.monotonic() < until:  # busy with something that nothing breaks off
            time.sleep(0.01)
        return Idle(context)

    registry.register(dataclasses.replace(real, create=create), replace=True)
    try:
        return begin("mesh", address, 20)
    finally:
        registry.register(real, replace=True)


@pytest.mark.parametrize("broken", range(SIZE))
def test_whoever_hosts_the_store_stays_until_all_have_heard(pool, address, broken):
    ends = pool.run(late_and_broken, address, broken, 1.0, timeout=2 * TIMEOUT_S)
    for rank, (kind, text, _) in enumerate(ends):
        assert "MESH_WIDTH=banana" in text
        assert kind == ("ValueError" if rank == broken else "DistBackendError")


def with_secret(address, values, timeout):
    with patch.object(secret, "_given", None):
        secret.use(values[int(os.environ["RANK"])])
        return begin("gloo", address, timeout)


def test_a_rank_that_is_refused_for_its_secret_is_mentioned_on_the_others(tcp_address):
    with RankPool(SIZE) as pool:
        ends = pool.run(with_secret, tcp_address, [b"a" * 32, b"a" * 32, b"b" * 32], 4, timeout=2 * TIMEOUT_S)
    assert ends[2][0] == "DistNetworkError"
    assert "another job secret" in ends[2][1]
    for kind, text, _ in ends[:2]:
        assert kind == "DistTimeoutError"
        for words in ("rank 2", "refused", "RANKWISE_SECRET_FILE must name the same secret for all"):
            assert words in text


def test_nothing_is_said_of_refusals_where_there_were_none(tcp_address):
    with pytest.raises(dist.DistTimeoutError) as caught:
        dist.init_process_group("gloo", tcp_address, rank=0, world_size=2, timeout=0.3)
    assert "refused" not in str(caught.value)


def until_others_have_beaten(address, count):
    """Return when rank 1 has sent so many heartbeats."""
    host, port = address.removeprefix("tcp://").split(":")
    with dist.TCPStore(host, int(port), timeout=TIMEOUT_S) as store:
        beats = lambda: int((store.peek("world/watch/beat/1") or b"[0,")[1:].partition(b",")[0])  # noqa: E731
        assert wait_until(lambda: beats() >= count, TIMEOUT_S)


def requests_of_a_beginning(address, late):
    """Begin, on rank 2 late to come or to make the group; return what was asked of the store by thread."""
    rank, asked, ask, create = int(os.environ["RANK"]), {}, Connection._ask, making._create
    if late == "to come" and rank == 2:
        until_others_have_beaten(address, 4)

    def create_late(*terms):
        until_others_have_beaten(address, 12)
        asked.clear()
        asked["rankwise meeting"] = ["claim", "arrive"]
        return create(*terms)

    def noted(self, name, *args):
        asked.setdefault(threading.current_thread().name, []).append(name)
        return ask(self, name, *args)

    creates = create_late if late == "to make it" and rank == 2 else create
    often = patch.dict(os.environ, {"RANKWISE_HEARTBEAT_S": "0.2"})
    with often, patch.object(Connection, "_ask", noted), patch.object(making, "_create", creates):
        dist.init_process_group("gloo", address, rank=rank, world_size=SIZE, timeout=TIMEOUT_S)
    dist.destroy_process_group()
    return asked


@pytest.mark.parametrize("late", ["", "to come", "to make it"])
def test_a_beginning_takes_five_requests_however_long_it_takes_and_signs_of_life(pool, tcp_address, late):
    """Those that wait for each other ask once; the watcher alone asks again, when it tells that its rank lives."""
    for rank, asked in enumerate(pool.run(requests_of_a_beginning, tcp_address, late, timeout=2 * TIMEOUT_S)):
        hellos = sum(names.count("hello") for names in asked.values())
        assert hellos <= (2 if rank else 0), rank  # whichever thread finds no connection free opens the second one
        asked = {t: rest for t, names in asked.items() if (rest := [name for name in names if name != "hello"])}
        assert set(asked.pop("rankwise watch", [])) <= {"set_and_peek"}
        assert asked.pop("rankwise meeting") == ["claim", "arrive", "arrive", "arrive"], rank
        assert not asked, rank


def _made_by_the_others_alone(address, transport):
    """Begin where one rank's time-out passes when all others have made the group already."""
    rank, settle = int(os.environ["RANK"]), making._settle

    def late(*terms):
        settle(*terms)
        raise dist.DistTimeoutError("the answer came too late")

    way = patch.dict(os.environ, {"RANKWISE_GLOO_TRANSPORT": transport})
    try:
        with way, patch.object(making, "_settle", late if rank == 1 else settle):
            dist.init_process_group("gloo", address, rank=rank, world_size=SIZE, timeout=TIMEOUT_S)
            dist.barrier()
    except dist.DistError as error:
        return type(error).__name__, str(error)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return "none", ""


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_a_rank_that_comes_too_late_to_the_end_of_a_beginning_says_so(pool, tcp_address, transport):
    found = pool.run(_made_by_the_others_alone, tcp_address, transport)
    assert found.pop(1) == ("DistTimeoutError", "timed out: the answer came too late")
    text = "init_process_group has failed on rank 1: timed out: the answer came too late"
    assert [kind for kind, _ in found] == ["GroupAbortedError"] * 2
    assert all(text in said for _, said in found), found


class _Stopped(Exception):
    pass


def _interrupted_when_all_have_met(address):
    """Make a group of which one rank is interrupted between the end of the meeting and its hearing of that."""
    rank, attended = int(os.environ["RANK"]), making.attended

    def interrupts_the_first(step, *terms):
        making.attended = attended
        attended(step, *terms)
        error = _Stopped("by a handler")
        error._rankwise_a_handlers = True
        raise error

    dist.init_process_group("gloo", address, rank=rank, world_size=SIZE, timeout=TIMEOUT_S)
    said, began = [], time.monotonic()
    making.attended = interrupts_the_first if rank == 1 else attended
    for _ in range(2):
        try:
            group = dist.new_group(timeout=TIMEOUT_S)
            dist.barrier(group)
            said.append("made")
        except (_Stopped, dist.DistError) as error:
            said.append(f"{type(error).__name__}: {error}")
    dist.destroy_process_group()
    return said, time.monotonic() - began


def test_a_rank_that_is_interrupted_when_all_have_met_is_not_waited_for(pool, tcp_address):
    found = pool.run(_interrupted_when_all_have_met, tcp_address)
    for rank, (said, took_s) in enumerate(found):
        assert said[1] == "made"
        assert said[0].startswith("_Stopped" if rank == 1 else "GroupAbortedError"), found
        assert took_s < 2 * LEEWAY_S
