"""A few of the programs that are run side by side with torch's gloo; `whole_side_by_side.py` has them all."""

from pathlib import Path

import side_by_side

_PAGE = Path(__file__).parents[3] / "docs/torch.md"
_SOME = """
    ddp, uneven: join, divided by those that are left
    ddp, state: logged
    zero: Adam
    objects: nested
    groups, many: one after the other
    works: all_reduce
    futures: then
    functional: all_reduce sum
    redistributed: rows to columns
    fsdp2, steps: clipped
    coalesced: all_reduce
    mistakes: a root that is not there
"""


def test_some():
    """They differ where they must, and nowhere else."""
    names = [line.strip() for line in _SOME.strip().splitlines()]
    found = side_by_side.compare(names)
    assert {name: row for name, (row, _) in found.items()} == {
        "ddp, state: logged": "DDP's logging data",
        "mistakes: a root that is not there": "errors in arguments",
    }, found


def test_each_difference_has_a_row():
    """In the table of docs/torch.md."""
    rows = [
        line.split("|")[1].strip() for line in _PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")
    ]
    assert not set(side_by_side.DIFFERENT.values()) - set(rows)
