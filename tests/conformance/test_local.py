"""The conformance suite on `local`, which keeps its word, and on a backend that does not."""

import json
import os
import re
import subprocess
import sys

import rankwise_testing


def test_local_is_what_it_declares(run, tmp_path):
    report = tmp_path / "local.json"
    said = run("--backend", "local", "--report", str(report))
    assert said.returncode == 0, said.stdout[-8000:] + said.stderr[-2000:]
    measured = json.loads(report.read_text())
    assert measured["differences"] == []
    assert measured["not_measured"] == []
    assert measured["measured"] == measured["declared"]
    covered = measured["covered"]
    assert covered["cells"] == covered["declared_cells"] > 600
    assert covered["sizes"] == [*range(1, 12), 16]
    assert covered["not_run"] == {}
    assert "635 of 635 declared cells were run and work: 11 operations on 28 dtypes" in said.stdout


#: Each lie of the liar, by the test that must catch it; and truths, which must not be taken for lies.
LIES = {
    "test_cell[broadcast-float16]": "declared, but does not work",
    "test_cell[scatter-float32]": None,  # that it works is worth a note
    "test_cell[broadcast-float64]": None,
    "test_cell[all_reduce-SUM-int64]": None,
    "test_an_undeclared_feature_is_tried[any_source]": None,
    "test_tags_tell_messages_apart": "elements are wrong",
    "test_all_ranks_get_the_same_bits_every_time[4]": "different bits",
    "test_two_ranks_that_disagree_are_both_named[size]": "instead of CollectiveMismatchError",
    "test_two_ranks_that_disagree_are_both_named[root]": None,
}


def test_every_lie_is_caught_and_named(run, tmp_path):
    report = tmp_path / "liar.json"
    # Without its last two, each of which ends in a time-out.
    wanted = "same_bits or tags_tell or undeclared_feature or (both_named and not operation and not barrier)"
    arguments = ["--backend", "liar", "--plugin-module", "liar", "--report", str(report), "-rA", "--tb=line"]
    cells = "broadcast-float or cell[scatter or all_reduce-SUM-int64"
    said = run(*arguments, "-k", f"{wanted} or {cells}")
    assert said.returncode == 1, said.stdout[-8000:] + said.stderr[-2000:]
    for name, words in LIES.items():
        verdict = re.search(rf"^(PASSED|FAILED) \S*::{re.escape(name)}(?: - (.*))?$", said.stdout, re.MULTILINE)
        assert verdict is not None, f"{name} did not run:\n{said.stdout[-8000:]}"
        assert verdict[1] == ("PASSED" if words is None else "FAILED"), verdict[0]
        assert words is None or re.search(words, said.stdout), f"{name} does not say {words!r}:\n{said.stdout[-8000:]}"
    for name in ("scatter", "any_source"):
        assert f"{name} works, and is not declared" in said.stdout
    differences = json.loads(report.read_text())["differences"]
    assert {found.pop("test") for found in differences} >= {
        "test_cell[broadcast-float16]",
        "test_cell[scatter-float32]",
    }
    assert {"op": "broadcast", "reduce_op": None, "dtype": "float16", "declared": True, "works": False} in differences
    assert {"op": "scatter", "reduce_op": None, "dtype": "float32", "declared": False, "works": True} in differences
    assert {"feature": "any_source", "declared": False, "works": True} in differences
    assert {"feature": "tags", "declared": True, "works": False} in differences


def test_the_suite_is_also_a_function(capfd):
    assert rankwise_testing.conformance("local", extra_args=["-q", "-k", "a_message_of_nothing"]) == 0
    assert "1 passed" in capfd.readouterr().out


def test_the_suite_loads_nothing_of_the_project_where_it_runs(tmp_path, monkeypatch):
    (tmp_path / "tests").mkdir()
    for folder in (tmp_path, tmp_path / "tests"):
        (folder / "conftest.py").write_text("raise RuntimeError('loaded')")
    monkeypatch.chdir(tmp_path)
    assert rankwise_testing.conformance("local", extra_args=["-q", "-k", "a_message_of_nothing"]) == 0


def test_the_options_are_in_no_other_run_of_pytest(tmp_path):
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass")
    command = [sys.executable, "-m", "pytest", "-p", "rankwise_pytest", "-q", "-c", os.devnull, "test_nothing.py"]
    refused = subprocess.run([*command, "--backend", "x"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "unrecognized arguments: --backend" in refused.stderr


def test_what_cannot_be_proved_is_told_before_anything_runs(run):
    assert "give --backend NAME" in run().stderr
    assert "no backend 'nothing' is installed" in run("--backend", "nothing").stderr
    assert "'local' serves cpu, not 'cuda'" in run("--backend", "local", "--device", "cuda").stderr
    assert "'gloo' has no cuda here: through the host" in run("--backend", "gloo", "--device", "cuda").stderr
    unknown = run("--backend", "local", "--variant", "pigeons").stderr
    assert "'local' declares no variant 'pigeons' (it declares none)" in unknown
