"""Which interface ranks on different hosts use."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import across
import pytest
from machines import Hosts, between_hosts, run

PATIENCE_S = 10.0

pytestmark = between_hosts


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Two hosts, each with a second interface that leads nowhere, one of them without an address."""
    with Hosts(2) as hosts:
        bridges = [f"link add {name} type bridge" for name in ("spare", "empty")]
        for host, words in product(hosts.names, [*bridges, "address add 10.88.0.1/24 dev spare"]):
            command = ["ip", "-n", host, *words.split()]
            subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
        yield hosts


def test_the_route_to_the_master_decides(hosts: Hosts, tmp_path: Path) -> None:
    assert run(hosts, tmp_path, [0, 1], across.addresses) == [[address] for address in hosts.addresses]


def test_the_first_named_interface_with_an_address_is_used(hosts: Hosts, tmp_path: Path) -> None:
    variables, names = ("RANKWISE_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"), ("eth0", "empty,eth0", " eth0 , lo")
    found = run(hosts, tmp_path, [0, 1], across.addresses_by, list(product(variables, names)))
    assert found == [[[address]] * 6 for address in hosts.addresses]


def test_a_name_that_is_wrong_lists_those_that_exist(hosts: Hosts, tmp_path: Path) -> None:
    for text in run(hosts, tmp_path, [0, 1], across.trouble, RANKWISE_SOCKET_IFNAME="eth7"):
        assert str(text).startswith("ValueError"), text
        for word in ("RANKWISE_SOCKET_IFNAME=eth7", "no interface eth7", "lo", "eth0", "spare", "empty"):
            assert word in str(text)


def test_an_interface_that_does_not_lead_to_the_others_is_an_error_that_says_so(hosts: Hosts, tmp_path: Path) -> None:
    found = run(hosts, tmp_path, [0, 1], across.trouble, True, RANKWISE_SOCKET_IFNAME="spare")
    assert all("rank" in str(text) for text in found), found
