"""`python -m rankwise_tools.fit`: what it fits to is what it was given, and what it saves is what `explain` reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rankwise.backends.declaration import Explanation, Stage
from rankwise.collective.algorithms.table import AlgorithmChoice
from rankwise_tools import fit
from rankwise_tools.explaining.network import Line, Parameters, Sample, fitted, off_by, predicted

PATIENCE_S = 60.0
NETWORK = Parameters(alpha_us=30.0, gbit_per_s=10.0, combine_gb_per_s=8.0, message_us=4.0)


def taken(nbytes: int) -> float:
    return 34e-6 + nbytes * 0.8e-9


def test_it_finds_the_parameters_of_a_network_that_keeps_to_the_model() -> None:
    found = fitted([Sample(nbytes, taken(nbytes)) for nbytes in (8, 4096, 1 << 18, 1 << 22)], 8.0, 4.0)
    assert found == pytest.approx(NETWORK, rel=0.001)


def test_one_long_message_that_was_held_up_changes_nothing() -> None:
    samples = [Sample(nbytes, taken(nbytes)) for nbytes in (8, 4096, 1 << 18, 1 << 20)]
    found = fitted([*samples, Sample(1 << 22, 1.5 * taken(1 << 22))], 8.0, 4.0)
    assert found == pytest.approx(NETWORK, rel=0.01)


def test_it_predicts_what_the_model_knows_and_nothing_else() -> None:
    choice = AlgorithmChoice("streamed")
    like_ours = Explanation((choice,), choice, {}, "two_shot")
    nbytes = 1 << 20
    share = nbytes / 2 * 0.8e-9
    expected = 2 * (34e-6 + share) + nbytes / 2 / 8e9
    assert predicted("all_reduce", nbytes, 2, like_ours, NETWORK) == pytest.approx(expected)
    assert predicted("all_reduce", nbytes, 2, like_ours._replace(like=""), NETWORK) is None


def test_stages_take_their_time_one_after_the_other() -> None:
    choice = AlgorithmChoice("hosts")
    stages = (Stage("all_gather", "direct", 2, 0), Stage("", "", 1, 8_000_000), Stage("broadcast", "flat", 2, 1 << 20))
    explained = Explanation((choice,), choice, {}, stages=stages)
    expected = 34e-6 + 1e-3 + (34e-6 + (1 << 20) * 0.8e-9)
    assert predicted("broadcast", 1 << 20, 4, explained, NETWORK) == pytest.approx(expected)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier"])
@pytest.mark.parametrize("hosts", [[1, 1], [1, 1, 1], [1] * 16, [2, 2], [4] * 8])
def test_all_that_gloo_does_between_hosts_is_predicted(op: str, hosts: list[int]) -> None:
    tables = pytest.importorskip("rankwise_gloo_tcp.collectives.tables")
    for nbytes in (8, 64 << 10, 8 << 20):
        found = predicted(op, nbytes, sum(hosts), tables.explain(op, nbytes, hosts), NETWORK)
        assert found is not None
        assert found >= 30e-6


def test_the_error_is_a_factor_in_either_direction() -> None:
    def line(measured_s: float, predicted_s: float | None) -> Line:
        return Line("all_reduce", 8, "streamed", measured_s, predicted_s)

    assert off_by([line(2.0, 1.0), line(1.0, 2.0), line(3.0, 3.0), line(5.0, None)]) == pytest.approx((2.0, 2.0))
    assert off_by([line(5.0, None)]) is None


@pytest.mark.parametrize(
    ("places", "away"), [("aabb", [2, 3]), ("abab", [1, 3]), ("abbb", [1, 2, 3]), ("aaaa", [1, 2, 3])]
)
def test_the_network_is_measured_between_hosts_where_there_are_several(places: str, away: list[int]) -> None:
    assert list(fit._away(places)) == away


def test_ranks_of_a_job_measure_their_network(tmp_path: Path) -> None:
    """On one host there is nothing to predict; with or without sockets messages are measured."""
    file = tmp_path / "network.json"
    command = [sys.executable, "-m", "rankwise", "run", "-n", "2", "-m", "rankwise_tools.fit", "--save", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 ranks on 1 host: a message takes" in done.stdout
    assert "none of these is predicted" in done.stdout
    saved = Parameters.load(file)
    assert min(saved) >= 0
    assert saved.gbit_per_s > 0
