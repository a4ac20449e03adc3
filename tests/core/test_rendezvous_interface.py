"""Which address of this machine is used, and how a host's address is found."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rankwise.errors import DistNetworkError, DistTimeoutError
from rankwise_network import interface
from rankwise_stores.tcp import guard

PATIENCE_S = 60.0
HAS_IPV6 = os.path.exists("/proc/net/if_inet6")


@pytest.fixture(autouse=True)
def _no_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANKWISE_SOCKET_IFNAME", raising=False)
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)


def names(*addresses: str) -> object:
    """Return a stand-in for the system's look-up, which answers with these addresses."""

    def getaddrinfo(host: str, port: object, **_: object) -> list[object]:
        family = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(family[":" in a], socket.SOCK_STREAM, 6, "", (a, 0)) for a in addresses]

    return getaddrinfo


@pytest.mark.parametrize("toward", ["127.0.0.1", "127.5.5.5", "localhost", "::1", "[::1]"])
def test_the_way_to_this_machine_is_a_loopback_address(toward: str) -> None:
    if ":" in toward and not HAS_IPV6:
        pytest.skip("this machine has no IPv6")
    address = interface.local_address(toward)
    assert interface.is_loopback(address)
    with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET):
        pass


def test_the_route_decides_and_this_machines_name_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("a name was looked up"))
    outside = interface.outward_address()
    assert outside is None or not interface.is_loopback(outside)
    if outside is not None:
        assert interface.local_address("192.0.2.7") == outside


@pytest.mark.parametrize("variable", ["RANKWISE_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"])
def test_a_variable_overrides_the_route(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    for value in ("lo", "lo,lo", " lo "):
        monkeypatch.setenv(variable, value)
        assert interface.local_address("192.0.2.7") == "127.0.0.1"
        if HAS_IPV6:
            assert interface.local_address("2001:db8::7") == "::1"


def test_our_variable_counts_before_gloos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKWISE_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no-such-interface")
    assert interface.local_address("127.0.0.1") == "127.0.0.1"


@pytest.mark.parametrize("value", ["eth99", "lo,eth99", "^lo", ","])
def test_a_wrong_name_lists_those_that_exist(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", value)
    with pytest.raises(ValueError, match=r"GLOO_SOCKET_IFNAME=.*this machine has .*\blo\b"):
        interface.local_address("127.0.0.1")


def test_addresses_are_taken_as_they_are_and_names_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert interface.resolve("10.1.2.3") == ["10.1.2.3"]
    assert interface.resolve("[2001:DB8::0:1]") == ["2001:db8::1"]
    monkeypatch.setattr(socket, "getaddrinfo", names("2001:db8::1", "10.1.2.3", "2001:db8::1"))
    assert interface.resolve("node7") == ["10.1.2.3", "2001:db8::1"]


NO_NAMES = ["", "a..b", "x" * 70, "y." * 200, "\0", "é" * 100]


@pytest.mark.parametrize("name", ["no-such-host.invalid", *NO_NAMES])
def test_an_unknown_name_is_a_network_error(name: str) -> None:
    with pytest.raises(DistNetworkError, match="cannot be looked up here"):
        interface.resolve(name)


@pytest.mark.parametrize("number", [socket.EAI_NONAME, socket.EAI_AGAIN, socket.EAI_FAIL])
def test_a_name_that_nobody_knows_yet_is_waited_for(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    known, looks = names("127.0.0.1"), list[str]()

    def look_up(host: str, *args: object, **kwargs: object) -> object:
        looks.append(host)
        if len(looks) < 5:
            raise socket.gaierror(number, "not known")
        return known(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(DistTimeoutError, match=r"'pod0' cannot be looked up here: .*that has been so for 0\.01 s"):
        interface.resolve_in_time("pod0", 0.01)
    assert interface.resolve_in_time("pod0", 60.0) == ["127.0.0.1"]
    assert len(looks) == 5


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_can_be_no_name_is_not_waited_for(name: str) -> None:
    with pytest.raises(DistNetworkError, match=r"cannot be looked up here: (there must be|a name)"):
        interface.resolve_in_time(name, 60.0)


def test_loopback_is_known_in_every_form() -> None:
    for address in ("127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"):
        assert interface.is_loopback(address), address
    for address in ("10.0.0.1", "::2"):
        assert not interface.is_loopback(address), address


def test_without_a_secret_a_name_means_its_loopback_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", names("10.1.2.3", "127.0.1.1"))
    assert guard.addresses_of("node7", False, 1) == ["127.0.1.1"]
    assert guard.addresses_of("node7", True, 1) == ["10.1.2.3", "127.0.1.1"]
    monkeypatch.setattr(socket, "getaddrinfo", names("10.1.2.3"))
    with pytest.raises(DistNetworkError, match=r"node7 \(10\.1\.2\.3\) can be reached from the network"):
        guard.addresses_of("node7", False, 1)


def test_with_a_secret_a_machines_own_name_is_one_that_others_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many systems look up their own name as 127.0.1.1; the other hosts would wait for rank 0 in vain."""
    outside = interface.outward_address()
    monkeypatch.setattr(socket, "getaddrinfo", names("127.0.1.1"))
    assert guard.addresses_of("node7", True, 1) == [outside or "127.0.1.1"]
    for name in ("localhost", "LocalHost.", "a.localhost"):
        assert guard.addresses_of(name, True, 1) == ["127.0.1.1"]
    assert guard.addresses_of("127.0.1.1", True, 1) == ["127.0.1.1"]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "fe80::1%lo", "fe80::1%1"])
def test_what_a_socket_takes_is_what_it_tells(address: str) -> None:
    number = socket.if_nametoindex("lo")
    there = interface.place(address.replace("%1", f"%{number}"), 80)
    if "%" in address:
        assert there == ("fe80::1", 80, 0, number)
        assert interface.address_of(there) == "fe80::1%lo"
        assert interface.place("fe80::1%elsewhere", 80, "fe80::2%lo") == there  # the link has another name there
    else:
        assert (there, interface.address_of(there)) == ((address, 80), address)


def test_an_interface_that_is_not_there_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError):  # noqa: PT011 - its words are the system's
        interface.place("fe80::1%nowhere", 80)


NO_NETWORK = ["unshare", "--net"]


@pytest.mark.parametrize(
    "words",
    [
        "-m rankwise run -n 2 meet.py",
        "-c 'import rankwise; rankwise.TCPStore(\"127.0.0.1\", 29500, timeout=0.5)'",
        "-c 'from rankwise_network.interface import local_address; local_address(\"localhost\")'",
    ],
    ids=["launched", "store", "listening"],
)
def test_a_loopback_interface_that_is_down_is_named(tmp_path: Path, words: str) -> None:
    """In a bare container it is, and whoever listens there cannot be reached."""
    if not shutil.which("unshare") or subprocess.run([*NO_NETWORK, "true"], check=False).returncode:
        pytest.skip("this machine permits no namespaces of networks")
    (tmp_path / "meet.py").write_text("import rankwise\nrankwise.init_process_group('gloo', timeout=10)\n")
    command = [*NO_NETWORK, sys.executable, *shlex.split(words)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1, done
    assert "the loopback interface of this machine is down; on Linux `ip link set lo up` brings it up" in done.stderr


def test_an_address_without_a_route_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert interface.unreachable("127.0.0.1") == ""
    monkeypatch.setattr(interface, "_route", lambda address: None)
    assert interface.unreachable("192.0.2.7") == "no route leads there from this machine"
