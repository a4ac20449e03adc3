"""`rankwise explain`: what it says is what runs."""

from __future__ import annotations

import re
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rankwise.backends import Call, ReduceOp
from rankwise.backends import compiled_parts as native
from rankwise.cli import NOT_INSTALLED, main
from rankwise.collective.algorithms.table import CHOICES, derived_algorithm, fitting_algorithm
from rankwise_gloo_tcp.board.board import fetch_from_nbytes
from rankwise_gloo_tcp.board.moving import Combine, Move, ToAll
from rankwise_gloo_tcp.board.prepared import BoardKinds
from rankwise_gloo_tcp.board.reducing import OneShot, TwoShot
from rankwise_gloo_tcp.collectives.tables import MIXED, NETWORK, explain
from rankwise_tools.explain_command import _TREES
from rankwise_tools.explaining.algorithms import ALGORITHMS
from rankwise_tools.explaining.costs import Network, reckoned
from rankwise_tools.explaining.network import Parameters
from rankwise_tools.explaining.simulator import simulate

#: Of a processor; it is the work of some 5 s.
PATIENCE_S = 40.0
KINDS = {"one_shot": OneShot, "two_shot": TwoShot, "combine": Combine, "board": Move, "fetch": Move}
SIZE = 3


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str, str]:
    try:
        code: object = main(["explain", *arguments])
    except SystemExit as end:
        code = end.code
    return code, *capsys.readouterr()


@pytest.mark.parametrize("op", CHOICES)
def test_it_names_the_algorithm_that_derived_collectives_take(capsys: pytest.CaptureFixture[str], op: str) -> None:
    code, out, _ = run(capsys, op, "--bytes", "64KiB", "--ranks", "6", "--backend", "derived")
    chosen = derived_algorithm(op, 65536, 6)
    assert code == 0
    assert out.splitlines()[0].endswith(f"on 6 ranks, 1 host, by derived: {chosen}")
    assert len(re.findall(rf"-> {chosen} ", out)) == 2  # in the table, and among the simulated


@pytest.mark.parametrize("op", CHOICES)
@pytest.mark.parametrize(("hosts", "table"), [("2", MIXED), ("6", NETWORK)])
def test_it_knows_gloo_s_tables_for_several_hosts(
    capsys: pytest.CaptureFixture[str], op: str, hosts: str, table: Any
) -> None:
    code, out, _ = run(capsys, op, "--bytes", "64KiB", "--ranks", "6", "--hosts", hosts)
    chosen = fitting_algorithm(op, 65536, 6, table).name
    assert code == 0
    how = " in Python" if native.module() is None else " with rankwise-native"
    assert out.splitlines()[0].endswith(f"on 6 ranks, {hosts} hosts, by gloo{how}: {chosen}")
    assert f"-> {chosen} " in out
    assert f"\n  {chosen}: " in out


@pytest.fixture
def board() -> SimpleNamespace:
    """What of a board is asked before anything moves, on three ranks with a processor each."""
    areas = [[np.zeros(512 << 10, np.uint8) for _ in range(SIZE)] for _ in range(2)]
    return SimpleNamespace(
        rank=1,
        size=SIZE,
        areas=lambda: areas,
        area_nbytes=512 << 10,
        fetch_nbytes=partial(fetch_from_nbytes, True),
        slot_nbytes=lambda slots: min(256 << 10, (512 << 10) // slots),
    )


@pytest.mark.parametrize("op", [op for op in CHOICES if op != "barrier"])
@pytest.mark.parametrize("nbytes", [8, 256 << 10, (256 << 10) + 24, 8 << 20, 24 << 20, 48 << 20])
def test_on_one_host_it_says_what_is_prepared(board: Any, op: str, nbytes: int) -> None:
    part = np.zeros(max(1, nbytes // 8 // (1 if op in ("broadcast", "all_reduce", "reduce") else SIZE)))
    call = Call(op, part, ReduceOp.SUM, 0, [part] * SIZE, [part] * SIZE)
    kind = BoardKinds(board).prepare(call)
    said = explain(op, nbytes, [SIZE]).taken.name
    assert kind is not None
    assert {ToAll: Move}.get(type(kind.prepared), type(kind.prepared)) is KINDS[said]
    if isinstance(kind.prepared, Move):
        assert (part.size >= kind.prepared.route.fetch_count) == (said == "fetch")


@pytest.mark.parametrize("compiled", [False, True])
def test_two_ranks_copy_a_broadcast_together_where_both_are_compiled(
    monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    monkeypatch.setattr(native, "module", lambda: object() if compiled else None)
    least = fetch_from_nbytes(True, 1, compiled)
    assert (least < fetch_from_nbytes(True, 1)) == compiled
    assert [explain("broadcast", nbytes, [2]).taken.name for nbytes in (least - 1, least)] == ["board", "fetch"]


def test_one_rank_is_alone(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "all_reduce", "--ranks", "1")
    assert code == 0
    assert out.splitlines()[0].endswith(": alone")


@pytest.mark.parametrize(
    ("ended", "wrong"),
    [
        *((2, ["all_redcue"]), (2, ["barrier", "--ranks", "0"]), (2, ["barrier", "--bytes", "many"])),
        *((NOT_INSTALLED, ["barrier", "--backend", "glooo"]), (2, ["barrier", "--backend", "mpi"])),
    ],
)
def test_it_refuses_what_makes_no_sense(capsys: pytest.CaptureFixture[str], ended: int, wrong: list[str]) -> None:
    code, out, err = run(capsys, *wrong)
    assert (code, out) == (ended, "")
    assert err.startswith("rankwise explain: ")


@pytest.mark.parametrize("op", ALGORITHMS)
@pytest.mark.parametrize("nbytes", [1 << 10, 1 << 20])
def test_what_is_reckoned_for_many_ranks_is_near_what_is_simulated(op: str, nbytes: int) -> None:
    """Beyond some hundred ranks nobody can run every message; the reckoning must agree where both can be had."""
    network = Network(30e-6, 8e-10, 1.25e-10)
    for size in (96, 128):
        parts = [nbytes // size] * size
        for name, function in ALGORITHMS[op].items():
            if name not in _TREES:
                simulated = simulate(op, function, parts, network)
                assert max(cost.seconds for cost in reckoned(op, name, parts, network)) == pytest.approx(simulated, 0.2)


@pytest.mark.parametrize("op", ["all_gather", "broadcast", "all_reduce"])
@pytest.mark.parametrize("size", [1000, 4096])
def test_many_ranks_take_no_ring_where_its_rounds_cost_more_than_its_bytes_save(op: str, size: int) -> None:
    network = Network(30e-6, 8e-10, 1.25e-10)
    for nbytes in (1 << 20, 4 << 20, 32 << 20):
        parts = [nbytes // size] * size
        ring = max(
            cost.seconds for cost in reckoned(op, "scatter_ring" if op == "broadcast" else "ring", parts, network)
        )
        taken = derived_algorithm(op, nbytes, size)
        if taken == "binomial":
            assert simulate(op, ALGORITHMS[op][taken], parts, network) < ring
        else:
            assert max(cost.seconds for cost in reckoned(op, taken, parts, network)) <= ring


@pytest.mark.parametrize("op", ["all_reduce", "broadcast", "all_to_all"])
def test_a_hundred_thousand_ranks_take_seconds(capsys: pytest.CaptureFixture[str], op: str) -> None:
    began = time.process_time()
    code, out, _ = run(capsys, op, "--ranks", "100000", "--hosts", "12500", "--backend", "derived")
    assert time.process_time() - began < PATIENCE_S
    assert code == 0
    assert "Predicted with 30 us and 10 Gbit/s for each rank:" in out
    rows = out.partition("predicted")[2]
    assert all(name in rows for name in ALGORITHMS[op])


def test_it_takes_a_network_that_was_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Parameters(1000.0, 40.0, 8.0, 500.0).save(tmp_path / "network.json")
    arguments = ["barrier", "--ranks", "8", "--hosts", "8", "--network", str(tmp_path / "network.json")]
    assert run(capsys, *arguments)[1].splitlines()[-1].endswith(" 4.5 ms")
    assert run(capsys, *arguments, "--message-us", "0")[1].splitlines()[-1].endswith(" 1 ms")


@pytest.mark.parametrize("text", ["[1, 2]", "{", '{"alpha_us": "fast"}', '{"omega": 1}'])
def test_it_says_of_another_file_that_it_tells_no_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "network.json").write_text(text)
    code, _, error = run(capsys, "all_reduce", "--network", str(tmp_path / "network.json"))
    assert code == 2
    assert "tells no network, as `python -m rankwise_tools.fit` saves it" in " ".join(error.split())
