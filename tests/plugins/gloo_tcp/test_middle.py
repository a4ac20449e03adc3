"""What somebody in the middle of two hosts can do: whatever it is, the data is right or all ranks say what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import across
import pytest
from machines import Hosts, all_say, between_hosts, go_on, results, started

TUN = Path("/dev/net/tun")
COUNT, CALLS = 20_000, 6
#: What a network does as well, against which TCP is enough, and what it never does.
HARMLESS = ["repeat", "delay", "reorder", "lose"]
CHANGES = ["flip", "swap"]
#: The ways to guard what goes between hosts, and whether each promises that data does not change.
PROMISES = {"header": False, "full": True, "encrypted": True}

pytestmark = [between_hosts, pytest.mark.skipif(not TUN.exists(), reason=f"there is no {TUN} here")]


@pytest.fixture(scope="module")
def apart() -> Iterator[Hosts]:
    with Hosts(2, middle=Path(__file__).with_name("middle.py")) as hosts:
        yield hosts


def told(hosts: Hosts, folder: Path, integrity: str, native: str, *mischief: str) -> list[list[tuple[str, str, float]]]:
    """Return what each rank has said of the calls during each kind of mischief."""
    if integrity == "encrypted":
        pytest.importorskip("cryptography", reason="the extra `encryption` is not installed")
    hosts.tell_middle("pass")
    env = {"RANKWISE_GLOO_INTEGRITY": integrity, "RANKWISE_NATIVE": native}
    with started(hosts, folder, [0, 1], across.with_a_man_in_the_middle, COUNT, CALLS, **env) as processes:
        all_say("ready", processes)
        for kind in mischief:
            hosts.tell_middle(kind)
            go_on(processes)
            all_say("said", processes)
        hosts.tell_middle("pass")
        return results(processes)


@pytest.mark.parametrize("native", ["on", "off"])
@pytest.mark.parametrize("integrity", PROMISES)
def test_what_a_network_does_as_well_changes_nothing(apart: Hosts, tmp_path: Path, integrity: str, native: str) -> None:
    found = told(apart, tmp_path, integrity, native, *HARMLESS)
    assert [[kind for kind, _, _ in of_rank] for of_rank in found] == [["right"] * len(HARMLESS)] * 2, found


@pytest.mark.parametrize("native", ["on", "off"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("integrity", [name for name, promises in PROMISES.items() if promises])
def test_changed_data_is_one_error_of_all_ranks_and_never_a_wrong_sum(
    apart: Hosts, tmp_path: Path, integrity: str, change: str, native: str
) -> None:
    found = [of_rank[0] for of_rank in told(apart, tmp_path, integrity, native, change)]
    assert {kind for kind, _, _ in found} == {"ProtocolError"}, found
    assert len({text for _, text, _ in found}) == 1, found


@pytest.mark.parametrize("change", CHANGES)
def test_data_that_nothing_guards_is_wrong_or_an_error(apart: Hosts, tmp_path: Path, change: str) -> None:
    """What SECURITY.md says of `header`: whether a header or data was hit, is chance."""
    found = [of_rank[0] for of_rank in told(apart, tmp_path, "header", "on", change)]
    assert {kind for kind, _, _ in found} & {"ProtocolError", "ValueError"}, found


@pytest.mark.parametrize("integrity", PROMISES)
def test_a_connection_that_is_cut_is_said_to_be(apart: Hosts, tmp_path: Path, integrity: str) -> None:
    found = [of_rank[0] for of_rank in told(apart, tmp_path, integrity, "on", "cut")]
    assert {kind for kind, _, _ in found} == {"DistNetworkError"}, found
    assert len({text for _, text, _ in found}) == 1, found
