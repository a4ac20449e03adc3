"""All programs of `side_programs` over torch's gloo and over rankwise; `scripts/test-torch` runs it."""

import side_by_side


def test_no_difference_but_what_the_documentation_names():
    """Of at least 300 programs; and what it names is so."""
    names = list(side_by_side.table())
    assert len(names) >= 300
    found = side_by_side.compare(names)
    assert not {name: results for name, (row, results) in found.items() if row is None}
    assert {row for row, _ in found.values()} == set(side_by_side.DIFFERENT.values())
