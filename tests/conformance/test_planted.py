"""Bugs planted into backends that keep their word otherwise: the kit catches each by the tests that are about it."""

import re
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import bugs

LEEWAY_S = 60.0


@pytest.mark.parametrize("kind", list(bugs.BUGS))
def test_planted_bugs_are_caught_by_the_tests_about_them(kind):
    wrong = []
    for outcome in bugs.try_all(kind):
        caught = bugs.caught_by(kind, outcome)
        others = [test for test in outcome["failed"] if test not in caught]
        if not caught:
            wrong.append(f"nothing has caught {outcome['bug']}")
        if others:
            wrong.append(f"these fail on {outcome['bug']} too, and are not about it: {others}")
        if not outcome["passed"]:
            wrong.append(f"everything fails on {outcome['bug']}")
    assert not wrong, "\n".join(wrong)


def test_the_page_tells_in_words_what_is_wrong():
    page = (Path(__file__).parents[2] / "docs" / "planted-bugs.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", page, re.MULTILINE)
    named = [(kind, name) for kind, names in bugs.BUGS.items() for name in names]
    told = {name: bugs.description(kind, name) for kind, name in named}
    assert [row[1] for row in rows] == [told[row[0]] for row in rows]
    assert len(rows) >= 50
    assert sum(row[2] == "nothing" for row in rows) <= 2


def test_a_backend_that_ignores_its_time_outs_does_not_make_the_kit_stand_still(run):
    begin = time.monotonic()
    arguments = ["--backend", "never_in_time", "--plugin-module", "never_in_time", "--tb=line", "--patience", "1"]
    said = run(*arguments, "-k", "test_timeouts or test_a_message_of_nothing")
    assert time.monotonic() - begin < LEEWAY_S
    assert said.returncode == 1, said.stdout[-4000:]
    assert "5 tests stood still whatever their time-outs were; giving up" in said.stdout + said.stderr
