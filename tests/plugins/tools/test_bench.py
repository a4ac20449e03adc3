"""`rankwise bench`: runs that are saved and compared, the time that is left, and other libraries beside."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rankwise.cli import main
from rankwise_launch.commands import CommandError
from rankwise_tools import bench_command
from rankwise_tools.bench import progress
from rankwise_tools.bench.program import _batches
from rankwise_tools.bench.progress import Progress
from rankwise_tools.bench.saved import changes, elsewhere, load, noise, save, verdict

QUIET = [1.00, 1.01, 0.99, 1.00, 1.01, 0.99, 1.00, 1.01, 0.99, 1.00]
LOUD = [0.6, 1.5, 0.9, 1.0, 2.1, 0.7, 1.3, 1.0, 0.8, 1.2]


def result(batches: list[float], op: str = "all_reduce", nbytes: int = 65536, library: str = "gloo") -> dict[str, Any]:
    us = [seconds * 1e-6 for seconds in batches]
    return {
        "library": library,
        "op": op,
        "ranks": 2,
        "nbytes": nbytes,
        "latency_s": sum(us) / len(us),
        "batches_s": us,
    }


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        (QUIET, QUIET, "same"),
        (QUIET, [1.04 * s for s in QUIET], "same"),
        (QUIET, [1.2 * s for s in QUIET], "slower"),
        ([1.2 * s for s in QUIET], QUIET, "faster"),
        (LOUD, [1.2 * s for s in LOUD], "same"),
        (LOUD, [5 * s for s in LOUD], "slower"),
        (QUIET, [1.2 * s for s in LOUD], "same"),
        # Others were busy for most of one run: a program that is slower is so at its fastest, too.
        (QUIET, [*QUIET[:2], *(9 * s for s in QUIET[2:])], "same"),
        ([*QUIET[:2], *(9 * s for s in QUIET[2:])], QUIET, "same"),
    ],
)
def test_only_what_is_beyond_the_noise_is_a_change(then: list[float], now: list[float], said: str) -> None:
    (change,) = changes([result(now)], [result(then)])
    assert (change.is_slower, change.is_faster) == (said == "slower", said == "faster")
    assert verdict([change]).splitlines()[0].startswith(said if said != "same" else "the same but for noise: 1 of 1")


def test_a_burst_in_a_run_is_no_noise_of_all_of_it() -> None:
    assert noise([*QUIET[:-1], 50.0]) < 0.02
    assert noise(LOUD) > 0.2


def test_the_worst_comes_first_and_what_is_new_is_left_out() -> None:
    then = [result(QUIET), result(QUIET, "broadcast"), result(QUIET, nbytes=8)]
    now = [
        result([1.5 * s for s in QUIET]),
        result([3 * s for s in QUIET], "broadcast"),
        result(QUIET, "barrier", 0),
        result([s / 2 for s in QUIET], nbytes=8),
    ]
    lines = verdict(changes(now, then)).splitlines()
    assert lines == [
        "slower: gloo broadcast of 64 KiB takes 3 us, was 1 us: 3 times as long (noise 2%)",
        "slower: gloo all_reduce of 64 KiB takes 1.5 us, was 1 us: +50% (noise 2%)",
        "faster: gloo all_reduce of 8 B takes 500 ns, was 1 us: -50% (noise 2%)",
        "the same but for noise: 0 of 3",
    ]


def test_saved_runs_are_read_again_and_anything_else_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "run.json", {"python": "3"}, [result(QUIET)])
    saved = load(tmp_path / "run.json")
    (change,) = changes([result(QUIET)], saved.results)
    assert elsewhere({"python": "3", "new": ""}, saved.about) == ""
    assert elsewhere({"python": "4"}, saved.about) == "python: 4, was 3"
    assert change.ratio == pytest.approx(1)
    with pytest.raises(CommandError, match="cannot be read: No such file"):
        load(tmp_path / "nowhere.json")
    for content in ("", "[]", '{"rankwise_bench": 0}', '{"rankwise_bench": 1, "results": [{"batches_s": []}]}'):
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(CommandError, match="is no saved run"):
            load(tmp_path / "bad.json")


@pytest.mark.parametrize("calls", [1, 3, 100, 250])
def test_a_run_is_cut_into_parts_that_hold_all_calls(calls: int) -> None:
    times = [float(n * n) for n in range(calls + 1)]
    parts = _batches(times)
    assert len(parts) == min(calls, 100)
    if calls <= 100:
        assert parts == [after - before for before, after in pairwise(times)]
    assert min(times[1:]) <= parts[0] <= parts[-1] <= times[-1]


def test_the_time_left_is_that_of_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    with Progress(4.0) as bar:
        assert bar.left() == "0:00", "nothing is known yet"
        now[0] += 30
        bar.step("a small one", 1.0)
        assert bar.left() == "1:30"
        bar.step("a large one", 3.0)
        assert bar.left() == "0:00"


def test_other_libraries_are_summed_up_as_in_the_docs() -> None:
    results = [
        *(result([1.0], nbytes=n) for n in (8, 65536, 1 << 20)),
        *(result([s], nbytes=n, library="gloo-torch") for n, s in ((8, 4.0), (65536, 9.0), (1 << 20, 0.5))),
        result([160.0], nbytes=8, library="mpi4py"),
    ]
    assert list(bench_command._ratios(results)) == [
        "gloo-torch takes 6x as long, up to 64 KiB",
        "gloo-torch takes 0.5x as long, from 1 MiB",
        "mpi4py takes 160x as long, up to 64 KiB",
    ]


def test_what_is_like_the_docs_has_their_sizes() -> None:
    compared = (Path(__file__).parents[3] / "benchmarks/gloo_compare.py").read_text()
    (sizes,) = re.findall(r"^SIZES = (\(.*\))$", compared, re.MULTILINE)
    assert tuple(bench_command._sizes(bench_command.LIKE_DOCS)) == eval(sizes)


def test_a_run_is_saved_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rankwise_gloo_tcp")
    monkeypatch.chdir(tmp_path)
    bench = ["bench", "--backend", "gloo", "--sizes", "8,4KiB", "--iterations", "12", "--warmup", "2"]
    assert main([*bench, "--save", "run.json"]) == 0
    capsys.readouterr()
    told = json.loads(Path("run.json").read_text())
    assert [len(each["batches_s"]) for each in told["results"]] == [12, 12]
    for each in told["results"]:  # a run that was so much faster that no noise of a busy machine comes near it
        each["batches_s"] = [1e-12] * 12
    Path("fast.json").write_text(json.dumps(told))
    assert main([*bench, "--against", "fast.json"]) == 1
    assert "slower: gloo all_reduce of 8 B takes" in capsys.readouterr().out
    assert main([*bench, "-n", "3", "--against", "fast.json"]) == 2
    assert "has no run of these" in " ".join(capsys.readouterr().err.split())
    assert main([*bench, "--save", "no/such/folder.json"]) == 2
    assert "there is no folder no/such" in " ".join(capsys.readouterr().err.split())
