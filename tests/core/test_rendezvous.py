"""Where ranks meet: URLs, the environment of every launcher, and who hosts the store."""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.by_reference import command, returned
from tests.processes import free_port
from tests.threads import within

from rankwise.basics import entry_points
from rankwise.errors import DistError, DistNetworkError, DistStoreError, DistTimeoutError, PluginError
from rankwise.store import HashStore, Store
from rankwise.store.rendezvous import register_rendezvous_handler, rendezvous
from rankwise_network import launcher_env
from rankwise_network.launcher_env import from_environment, local_rank
from rankwise_network.slurm import expand_nodes
from rankwise_stores import FileStore, TCPStore, file, schemes

#: The module; its name in the package is that of the function.
module = sys.modules["rankwise.store.rendezvous"]

PATIENCE_S = 20.0
#: How long somebody waits who waits in vain; on a busy machine the first attempt to connect takes a while.
LEEWAY_S = 0.1
LAUNCHERS = re.compile("RANK|WORLD|MASTER|TORCHELASTIC|OMPI|PMI|SLURM|MPI_|SECRET|IFNAME")


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if LAUNCHERS.search(name):
            monkeypatch.delenv(name)


def meet(url: str, rank: int = -1, world_size: int = -1) -> tuple[Store, int, int]:
    return next(rendezvous(url, rank, world_size, PATIENCE_S))


def check_world(urls: list[str]) -> None:
    """Let each URL be that of one rank, and see that they find each other."""
    with ThreadPoolExecutor(len(urls)) as threads:
        places = list(threads.map(meet, urls))
    assert [place[1:] for place in places] == [(rank, len(urls)) for rank in range(len(urls))]
    for store, rank, _ in places:
        store.set(f"rank {rank}", "here")
    for store, _, size in places[::-1]:
        store.wait([f"rank {rank}" for rank in range(size)])
        store.close()


# ---------------------------------------------------------------------- tcp:// and file://


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_ranks_meet_over_tcp(host: str) -> None:
    if host == "[::1]" and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this machine has no IPv6")
    port = free_port()
    check_world([f"tcp://{host}:{port}?rank={rank}&world_size=3" for rank in range(3)])


def test_ranks_meet_in_a_file(tmp_path: Path) -> None:
    check_world([f"file://{tmp_path}/meet?rank={rank}&world_size=3" for rank in range(3)])
    assert list(tmp_path.iterdir()) == []


def test_rank_and_world_size_come_as_arguments_too(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/meet"
    for query, arguments in (
        ("", {"rank": 1, "world_size": 2}),
        ("?rank=1", {"world_size": 2}),
        ("?world_size=2", {"rank": 1}),
        ("?world_size=2&rank=1", {}),
    ):
        store, rank, size = meet(url + query, **arguments)
        assert (rank, size) == (1, 2)
        assert isinstance(store, FileStore)
        assert store.timeout.total_seconds() == PATIENCE_S
        store.close()


def test_a_world_of_one_may_take_any_port() -> None:
    store, rank, size = meet("tcp://127.0.0.1:0", 0, 1)
    assert isinstance(store, TCPStore)
    assert (rank, size) == (0, 1)
    assert store.port > 0
    store.close()


TCP = "tcp://127.0.0.1:1"
NO_PLACES = [":29500", "127.0.0.1", "user@127.0.0.1:1", "127.0.0.1:1/path"]
#: URLs that make no sense, by the reason that is told.
SENSELESS = {
    "scheme://": ["", "localhost:29500", "tcp:127.0.0.1:1"],
    "no such scheme; there are env://, etcd://, etcds://, file://": ["http://127.0.0.1:1", "://x"],
    "tcp://host:port": ["tcp://", *(f"tcp://{place}?rank=0&world_size=1" for place in NO_PLACES)],
    "[Pp]ort": [f"tcp://127.0.0.1:{port}" for port in ("port", "65536", "-1")],
    "IPv6": ["tcp://[::1"],
    "fragment": [f"{TCP}#rank=0"],
    "rank is missing": [TCP, "file:///tmp/x"],
    "world_size is missing": [f"{TCP}?rank=0"],
    "rank 2 is not in a world of 2": [f"{TCP}?rank=2&world_size=2"],
    "rank 0 is not in a world of 0": [f"{TCP}?rank=0&world_size=0"],
    "rank must be a number": [f"{TCP}?rank={rank}&world_size=2" for rank in ("-1", "one", "")],
    "rank is given twice": [f"{TCP}?rank=0&rank=1&world_size=2"],
    "'x' means nothing here": [f"{TCP}?rank=0&world_size=2&x=1"],
    "port 0 is for a world of one": ["tcp://127.0.0.1:0?rank=0&world_size=2"],
    "file:///path": ["file://", "file:///", "file://relative/path?rank=0&world_size=1"],
    "read from the environment": ["env://somewhere"],
}


@pytest.mark.parametrize(("url", "why"), [(url, why) for why, urls in SENSELESS.items() for url in urls])
def test_a_url_that_makes_no_sense_is_refused_with_the_reason(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        meet(url)
    assert repr(url) in str(caught.value)


def test_what_the_url_says_cannot_be_said_again(tmp_path: Path) -> None:
    for again in ({"rank": 0}, {"world_size": 2}):
        with pytest.raises(ValueError, match=f"{next(iter(again))} is given twice"):
            rendezvous(f"file://{tmp_path}/meet?rank=0&world_size=1", **again)
    with pytest.raises(TypeError, match="a URL is a str"):
        rendezvous(None)  # type: ignore[arg-type]


def test_a_registered_scheme_gets_the_url_and_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_handlers", {**vars(module)["_handlers"]})
    seen: list[Any] = []

    def handler(url: str, **kwargs: Any) -> Iterator[tuple[Store, int, int]]:
        seen.append((url, kwargs))
        yield HashStore(), 0, 1

    register_rendezvous_handler("mine", handler)
    next(rendezvous("mine://some/where?x=1", 3, timeout=5, more="this"))
    next(rendezvous("mine://some/where", world_size=2))
    assert seen[0] == ("mine://some/where?x=1&rank=3", {"timeout": 5, "more": "this"})
    assert seen[1][0] == "mine://some/where?world_size=2"
    for scheme in ("mine", "tcp"):
        with pytest.raises(ValueError, match=f"{scheme}:// has a handler already"):
            register_rendezvous_handler(scheme, handler)
    for scheme in ("", "My", "1x", "a b"):
        with pytest.raises(ValueError, match="cannot be the scheme"):
            register_rendezvous_handler(scheme, handler)


# ---------------------------------------------------------------------- who hosts the store


def test_a_second_rank_0_meets_the_first_so_that_both_can_be_named() -> None:
    port = free_port()
    first, second = meet(f"tcp://127.0.0.1:{port}", 0, 2)[0], meet(f"tcp://127.0.0.1:{port}", 0, 2)[0]
    first.set("key", "v")
    assert second.get("key") == b"v"
    assert second.timeout == first.timeout
    second.close()
    first.close()


def test_a_port_that_another_program_has_is_an_error_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with within(PATIENCE_S), pytest.raises(DistNetworkError, match=f"127.0.0.1:{port}: the port is in use"):
            next(rendezvous(f"tcp://127.0.0.1:{port}", 0, 2, timeout=0.2))


def test_a_host_that_does_not_come_up_is_waited_for_until_the_time_out() -> None:
    with pytest.raises(DistTimeoutError, match="nobody listens there"):
        next(rendezvous(f"tcp://127.0.0.1:{free_port()}", 1, 2, timeout=LEEWAY_S))


def test_what_a_process_loads_first_is_in_nobodys_time_out() -> None:
    program = f"""
import sys, time
from rankwise import rendezvous

class Slow:
    def find_spec(self, name, path, target=None):
        if name in ("zmq", "msgpack"):
            time.sleep({2 * LEEWAY_S})

sys.meta_path.insert(0, Slow())
next(rendezvous("tcp://127.0.0.1:{free_port()}", 1, 2, timeout={LEEWAY_S}))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert "DistTimeoutError" in ran.stderr
    assert "nobody listens there" in ran.stderr


def test_a_second_job_with_the_same_file_is_told_so(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/meet"
    stores = [meet(url, rank, 2)[0] for rank in range(2)]
    with pytest.raises(DistStoreError, match="give each job a file of its own"):
        meet(url, 0, 2)
    for store in stores:
        store.close()


# ---------------------------------------------------------------------- env://

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "node7", "MASTER_PORT": "29500"}
OPEN_MPI = {f"OMPI_COMM_WORLD_{name}": number for name, number in (("RANK", "1"), ("SIZE", "4"), ("LOCAL_SIZE", "4"))}
OPEN_MPI |= {"PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-node7-1234@1"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "4", "MASTER_PORT": "29500"}
SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "4321", "SLURM_STEP_ID": "0"}
SLURM |= {"SLURM_STEP_NODELIST": "node[07-08]", "SLURM_JOB_NODELIST": "node[01-08]"}
SLURM_PMIX = {**{k: v for k, v in SLURM.items() if k != "SLURM_PROCID"}, "PMIX_RANK": "1"}


@pytest.mark.parametrize(
    ("env", "address", "port"),
    [
        (TORCHRUN, "node7", 29500),
        ({**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "True"}, "node7", 29501),
        ({**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "False"}, "node7", 29500),
        ({**TORCHRUN, "MASTER_PORT": "65535", "TORCHELASTIC_USE_AGENT_STORE": "True"}, "node7", 65534),
        ({**TORCHRUN, "RANKWISE_STORE": "41000@node7:29500"}, "node7", 41000),
        ({**TORCHRUN, "RANKWISE_STORE": "41000@node7:29501"}, "node7", 29500),
        ({**TORCHRUN, "RANKWISE_STORE": "41000@node8:29500"}, "node7", 29500),
        ({**TORCHRUN, "RANKWISE_STORE": "@node7:29500"}, "node7", 29500),
        ({**SLURM, "RANKWISE_STORE": "41000@node07:29500"}, "node07", None),
        (OPEN_MPI, "127.0.0.1", None),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "MASTER_ADDR": "node7"}, "node7", None),
        (MPICH, "127.0.0.1", 29500),
        (SLURM, "node07", None),
        ({**SLURM, "SLURM_STEP_NODELIST": "node07"}, "127.0.0.1", None),
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "64"}, "node07", None),
        (SLURM_PMIX, "node07", None),
        ({**SLURM, **TORCHRUN, "SLURM_PROCID": "9"}, "node7", 29500),
        ({**SLURM, "WORLD_SIZE": "4"}, "node07", None),
    ],
)
def test_every_launcher_tells_the_place(env: dict[str, str], address: str, port: int | None) -> None:
    place = from_environment(env=env)
    assert (place.rank, place.world_size, place.master_addr) == (1, 4, address)
    if port is None:
        # The same on every rank of the job, and below the ports that systems give out.
        others = [{**env, name: "0"} for name in env if name.endswith(("RANK", "PROCID"))]
        assert {from_environment(env=other).master_port for other in others} == {place.master_port}
        assert 1024 < place.master_port < 32768
        assert "derived from the job's name" in place.origin
    else:
        assert place.master_port == port


def test_the_launcher_may_send_ranks_to_a_server() -> None:
    """Also one of an IPv6 address, and as long as the program means the launcher's master."""
    for url in ("redis://:word@db:6379/0?prefix=a", "etcd://[::1]:2379/jobs"):
        place = from_environment(env={**TORCHRUN, "RANKWISE_STORE": f"{url}@node7:29500"})
        assert (place.url, place.rank, place.world_size, place.is_served) == (url, 1, 4, False)
        other = from_environment(env={**TORCHRUN, "RANKWISE_STORE": f"{url}@node8:29500"})
        assert (other.url, other.master_addr, other.master_port) == ("", "node7", 29500)


def test_the_only_rank_of_a_job_meets_those_that_will_come() -> None:
    """And a world of its own, which the program makes within a job, meets nobody."""
    env = {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1", "RANKWISE_STORE": "41000@node7:29500"}
    place = from_environment(env=env)
    assert (place.master_addr, place.master_port, place.is_served) == ("node7", 41000, True)
    own = from_environment(0, 1, env={**env, "WORLD_SIZE": "4"})
    assert (own.master_addr, own.master_port, own.is_served) == ("127.0.0.1", 0, False)


def test_jobs_and_steps_of_slurm_meet_at_different_ports() -> None:
    names = [{"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step)} for job in range(5) for step in range(3)]
    assert len({from_environment(env={**SLURM, **name}).master_port for name in names}) == 15


@pytest.mark.parametrize(
    ("env", "missing"),
    [
        ({}, "RANK is not set.*`rankwise run` and torchrun.*OMPI_COMM_WORLD_RANK of Open MPI.*SLURM_PROCID of srun"),
        ({"RANK": "0"}, "WORLD_SIZE is not set"),
        ({**SLURM, "RANK": "0"}, "WORLD_SIZE is not set"),
        ({"SLURM_PROCID": "0"}, "SLURM_STEP_NUM_TASKS is not set"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR is not set"),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, "MASTER_ADDR is not set.*mpirun -x"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, "MASTER_PORT is not set"),
        ({**TORCHRUN, "RANK": ""}, "RANK is not set"),
        ({**TORCHRUN, "RANK": "one"}, "RANK must be a number, not 'one'"),
        ({**TORCHRUN, "WORLD_SIZE": "-4"}, "WORLD_SIZE must be a number"),
        ({**TORCHRUN, "MASTER_PORT": "http"}, "MASTER_PORT must be a number"),
        ({**TORCHRUN, "MASTER_PORT": "65536"}, "MASTER_PORT=65536 is no port"),
        ({**TORCHRUN, "MASTER_PORT": "0"}, "MASTER_PORT=0 is for a world of one; 4 ranks"),
        ({**TORCHRUN, "RANK": "4"}, "rank 4 is not in a world of 4"),
        ({**OPEN_MPI, "WORLD_SIZE": "8"}, "WORLD_SIZE=8, but the launcher has started 4 ranks"),
        ({**SLURM, "SLURM_STEP_NODELIST": "node[1-"}, "is not a node list"),
    ],
)
def test_a_variable_that_is_missing_or_wrong_is_named(env: dict[str, str], missing: str) -> None:
    with pytest.raises(ValueError, match=missing):
        from_environment(env=env)


def test_arguments_and_query_go_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert from_environment(rank=2, env=TORCHRUN).rank == 2
    assert from_environment(rank=0, world_size=1, env={"MASTER_ADDR": "a"})[:4] == (0, 1, "a", 0)
    for name, value in {**TORCHRUN, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}.items():
        monkeypatch.setenv(name, value)
    for url, arguments, place in (("env://?rank=0&world_size=3", (), (0, 3)), ("env://", (0,), (0, 4))):
        store, *found = meet(url, *arguments)
        assert tuple(found) == place
        store.close()


def test_the_local_rank_is_that_of_any_launcher() -> None:
    assert local_rank({}) is None
    assert local_rank({"LOCAL_RANK": "3", "SLURM_LOCALID": "1"}) == 3
    assert local_rank({"OMPI_COMM_WORLD_LOCAL_RANK": "2"}) == 2
    assert local_rank({"MPI_LOCALRANKID": "0"}) == 0


def test_where_torchrun_has_the_port_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1] - 1
        env = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        for name, value in {**env, "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(DistNetworkError, match=f"in use.*torchrun keeps MASTER_PORT={port} for itself"):
            next(rendezvous("env://", timeout=0.2))


def port_of_the_environment() -> int:
    return from_environment().master_port


def test_ranks_under_mpichs_launcher_find_its_process(tmp_path: Path) -> None:
    """Nothing in the environment names the job there, but all ranks descend from one process."""
    launcher = tmp_path / "hydra_pmi_proxy"
    launcher.write_text("""#!/bin/sh\nPMI_RANK=0 "$@" && sh -c 'PMI_RANK=1 "$@"; true' sh "$@"\n""")
    launcher.chmod(0o700)
    env = {**os.environ, "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}
    words = [str(launcher), *command(port_of_the_environment)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    ports = [returned(line) for line in done.stdout.splitlines()]
    assert len(ports) == 2, done.stderr
    assert ports[0] == ports[1]


def test_a_process_number_that_comes_again_is_another_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tells two processes of one number apart is when they started."""

    def stat_of(started: int) -> Callable[..., io.StringIO]:
        """Return a stand-in for `open` by which every process is a launcher that started at a moment."""
        between = " ".join(["0"] * 17)
        return lambda path, **_: io.StringIO(f"{path.split('/')[2]} (hydra_pmi_proxy) S 1 {between} {started} 0 0")

    names = set()
    for started in (100, 101, 100):
        monkeypatch.setattr(launcher_env, "open", stat_of(started), raising=False)
        names.add(launcher_env.job_name({"PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}))
    assert len(names) == 2


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("node1", ["node1"]),
        ("a,b-2,c.domain", ["a", "b-2", "c.domain"]),
        ("node[01-03,7]", ["node01", "node02", "node03", "node7"]),
        ("node[098-101]", ["node098", "node099", "node100", "node101"]),
        ("r[1-2]n[3-4],x", ["r1n3", "r1n4", "r2n3", "r2n4", "x"]),
        ("n[1]-ib,m[2-2]", ["n1-ib", "m2"]),
    ],
)
def test_slurms_node_lists_are_understood(text: str, nodes: list[str]) -> None:
    assert expand_nodes(text) == nodes


@pytest.mark.parametrize(
    "text", ["", ",", "n[", "n]", "n[]", "n[a-b]", "n[3-1]", "n[1-99999999]", "n[1-9]" * 30, "[[1]]", "n[1,]"]
)
def test_what_is_no_node_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="node"):
        expand_nodes(text)


hosts = st.sampled_from(["", "127.0.0.1", "[::1]", "[::", "localhost", "a" * 300, "é", "%00", "x@y", "1.2.3.4.5", ".."])
#: The last but one is a digit too, but not one of ours.
numbers = st.sampled_from(["", "0", "1", "-1", "9" * 11, "x", "0x1", " 1", "1_0", "\u0661", "\0"]) | st.text(max_size=4)
urls = st.builds(
    "{}{}{}:{}{}?rank={}&world_size={}{}".format,
    st.sampled_from(["tcp", "file", "env", "TCP", "x", ""]),
    st.sampled_from(["://", ":", ":///", "//"]),
    hosts,
    numbers,
    st.sampled_from(["", "/", "/a/b", "/\ud800", "/\0", "/%"]),
    numbers,
    numbers,
    st.sampled_from(["", "&rank=1", "#x", "&&", "&x=y", ";"]),
)
OTHERS = ("TORCHELASTIC_USE_AGENT_STORE", "RANKWISE_STORE")
variables = st.dictionaries(
    st.sampled_from(sorted({*TORCHRUN, *OPEN_MPI, *MPICH, *SLURM, *OTHERS})),
    numbers | st.sampled_from(["2", "4", "True", "node[1-2]", "n[" * 50, "\udc80", "a,b", "2@2:2", "\u0662@2:2"]),
)


@given(urls | st.text(max_size=40), variables)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_only_our_errors_escape_from_urls_and_environments(
    monkeypatch: pytest.MonkeyPatch, url: str, env: dict[str, str]
) -> None:
    with monkeypatch.context() as patch:
        # The parsing is what is tested: nothing shall be opened at the places that come out of it.
        patch.setattr(schemes, "TCPStore", lambda host, port, **_: HashStore())
        patch.setattr(file, "FileStore", lambda path, world_size, timeout: HashStore())
        patch.setattr(schemes, "from_environment", lambda rank, size: from_environment(rank, size, env))
        with contextlib.suppress(ValueError, DistError):
            _, rank, size = next(rendezvous(url, timeout=0.001))
            assert 0 <= rank < size


@given(st.text(alphabet="na[]-,019", max_size=14))
@settings(max_examples=200, deadline=None)
def test_a_node_list_is_understood_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert all(expand_nodes(text))


def test_a_scheme_that_two_distributions_claim_is_refused_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = {"one:handler": "rankwise-one 1.0", "two:handler": "rankwise-two 2.0"}
    monkeypatch.setattr(entry_points, "named", lambda group, name: claims)
    with pytest.raises(PluginError, match=r"mine:// is claimed by rankwise-one 1\.0 and rankwise-two 2\.0"):
        rendezvous("mine://somewhere")
