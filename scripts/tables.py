"""Write the capability tables into README.md and docs/backends.md; with --check, only tell whether they are stale."""

from __future__ import annotations

import sys
from pathlib import Path

from rankwise.backends.capability_table import CapabilityTable
from rankwise.backends.registry import KNOWN, registry

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- capabilities: begin -->\n", "<!-- capabilities: end -->\n"

HEAD = """# What each backend can do

`scripts/tables` generates this page from what the plugins declare. `native`: the backend's own library does it.
`derived`: it is built from the backend's other operations. `conditional`: it depends on the machine, as the note says.
`no`: the call is refused.
"""
YES = ("native", "derived")


def pages() -> dict[Path, str]:
    """Return the content that each page with a table should have."""
    table = CapabilityTable([registry.get(name).capabilities for name in KNOWN if name in registry.names()])
    readme = (ROOT / "README.md").read_text()
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return {
        ROOT / "README.md": before + BEGIN + "\n".join(brief(table)) + "\n" + END + after,
        ROOT / "docs" / "backends.md": HEAD + "\n" + table.to_markdown(),
    }


def brief(table: CapabilityTable) -> list[str]:
    """Return the table with what is alike in one row, and above all a row that says how much each backend does."""
    head, rule, *rows = ([cell.strip() for cell in row.split("|")[1:-1]] for row in markdown(table))
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, *cells in rows:
        alike.setdefault(tuple(cells), []).append(name)
    total = [summed([cells[column].split(" ")[0] for _, *cells in rows]) for column in range(len(head) - 1)]
    body = [[", ".join(names), *cells] for cells, names in alike.items()]
    return ["| " + " | ".join(row) + " |" for row in (head, rule, ["**all of them**", *total], *body)]


def markdown(table: CapabilityTable) -> list[str]:
    """Return the lines of the whole table, without notes."""
    return table.to_markdown(notes=False).splitlines()


def summed(words: list[str]) -> str:
    """Return how many cells of a column are a yes: all of them, or what the others are."""
    counts = {"yes": sum(map(words.count, YES)), "conditional": words.count("conditional"), "no": words.count("no")}
    if counts["yes"] == len(words):
        return "**all yes**"
    return ", ".join(f"{number} {word}" for word, number in counts.items() if number)


def main() -> int:
    """Write the pages, or tell which are stale."""
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        print("\n".join(f"{path.relative_to(ROOT)} is stale: run scripts/tables" for path in stale))
        return bool(stale)
    for path in stale:
        path.write_text(pages()[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
