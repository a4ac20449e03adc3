"""What one row of docs/where-to-change.md is tried by."""

from __future__ import annotations

from dataclasses import dataclass

from copies import Edit

__all__ = ["PAGES", "SUITE", "Trial"]

#: Where the tests of the pages are, and the conformance kit.
PAGES = "tests/docs/test_docs.py::"
SUITE = "plugins/testing/src/rankwise_testing/suite"


@dataclass(frozen=True)
class Trial:
    """One row.

    Attributes:
        row: What one wants: the row's first cell.
        edits: What makes it work.
        program: Shows that it works.
        else_: What else changes.
        noticed: The test that fails without the latter.
        ranks: On how many ranks the program runs; 0 without a launcher.
        anywhere: A file that the row leaves open.
    """

    row: str
    edits: tuple[Edit, ...]
    program: str
    else_: tuple[Edit, ...] = ()
    noticed: str = ""
    ranks: int = 0
    anywhere: str = ""
