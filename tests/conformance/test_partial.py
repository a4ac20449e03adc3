"""Backends that offer little, and keep to it, pass: the kit asks for nothing that the table does not offer."""

import re

import pytest


@pytest.mark.parametrize("name", ["few_dtypes", "only_messages", "no_features"])
def test_a_partial_backend_that_is_right_passes(run, name):
    # What a table offers depends on no size, and every test but those of large worlds has a small one.
    said = run("--backend", name, "--plugin-module", f"partial:{name}", "--tb=short", "--max-size", "3")
    assert said.returncode == 0, said.stdout[-8000:] + said.stderr[-2000:]
    passed, skipped = map(int, re.search(r"^(\d+) passed, (\d+) skipped", said.stdout, re.MULTILINE).groups())
    assert passed > 1_000
    assert skipped < passed / 2  # what it offers is tried, whatever its dtypes are
    cells, declared = re.search(r"(\d+) of (\d+) declared cells", said.stdout).groups()
    assert cells == declared
