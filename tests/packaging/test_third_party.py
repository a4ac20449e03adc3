"""The third-party example, as a stranger would have it: its wheel beside the core's, and the kit run on it."""

import json


def test_it_passes_the_conformance_suite(zoo, tmp_path):
    zoo.pip("pytest", "ml_dtypes")
    # What it does itself depends on no size: beyond a few ranks the core chooses, for every backend alike.
    kit = ("--pyargs", "rankwise_testing.suite", "--max-size", "4")
    said = zoo.pytest(*kit, "--backend", "mesh", "--report", str(tmp_path / "mesh.json"))
    assert " passed" in said
    assert " failed" not in said
    assert json.loads((tmp_path / "mesh.json").read_text())
