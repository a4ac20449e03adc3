"""Backends that offer little, and keep to it, pass: the kit asks for nothing that the table does not offer."""

import os
import re

import pytest

#: How many tests at least have something to try, and what works and is not declared, which is a note.
PARTIAL = {
    "few_dtypes": (1_000, ""),
    "int8_alone": (1_000, ""),
    "only_messages": (900, ""),
    "messages_and_no_word": (900, "all_gather works, and is not declared"),
    "broadcast_alone": (850, "scatter works, and is not declared"),
    "no_features": (1_000, ""),
    "no_tags": (1_000, "tags works, and is not declared"),
    "no_async": (1_000, "async works, and is not declared"),
    "pairs": (1_000, ""),
    "up_to_four": (1_000, ""),
    "fours": (900, ""),
}
#: Those that differ little from another of them.
ALIKE = ("few_dtypes", "only_messages", "no_async", "up_to_four")
alike = pytest.mark.skipif(
    "RANKWISE_TEST_LARGE" not in os.environ,
    reason="takes a minute, as one that is much like it; set RANKWISE_TEST_LARGE=1",
)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[alike] * (name in ALIKE)) for name in PARTIAL])
def test_a_partial_backend_that_is_right_passes(run, name):
    least, note = PARTIAL[name]
    # What a table offers depends on no size, and every test but those of large worlds has a small one.
    most = ["--max-size", "3"] if name != "fours" else []
    most += ["-k", "not 31_bits and not small_call and not cannot_be_made and not stands_still"]  # the slowest
    said = run("--backend", name, "--plugin-module", f"partial:{name}", "--tb=short", *most)
    assert said.returncode == 0, said.stdout[-8000:] + said.stderr[-2000:]
    assert int(re.search(r"^(\d+) passed", said.stdout, re.MULTILINE)[1]) > least
    cells, declared = re.search(r"(\d+) of (\d+) declared cells", said.stdout).groups()
    assert cells == declared
    notes = said.stdout.partition(" notes =")[2].partition(" promises =")[0]
    assert note in notes
    assert bool(note) == bool(notes)
