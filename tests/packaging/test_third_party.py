"""The third-party example, as a stranger would have it: its wheel beside the core's, and the kit run on it."""

import json


def test_it_is_in_the_table(zoo):
    table = json.loads(zoo.run("import rankwise; print(rankwise.capabilities('mesh').to_json())"))
    assert table["mesh"]["cpu"]["ops"]["send"]["support"] == "native"
    assert table["mesh"]["cpu"]["ops"]["all_to_all"]["support"] == "derived"


def test_it_passes_the_conformance_suite(zoo, tmp_path):
    zoo.pip("pytest", "ml_dtypes")
    report = tmp_path / "mesh.json"
    # What it does itself depends on no size: beyond a few ranks the core chooses, for every backend alike.
    kit = ("--pyargs", "rankwise_testing.suite", "--max-size", "4")
    said = zoo.pytest(*kit, "--backend", "mesh", "--report", str(report))
    assert " passed" in said
    assert " failed" not in said
    measured = json.loads(report.read_text())
    assert measured
