"""What measured tables have in common: the machine they were measured on, and their place in a page of docs/."""

from __future__ import annotations

import os
import platform
from pathlib import Path

#: Where it says what was aimed at, and what was reached.
AIMS = Path(__file__).parents[1] / "docs/developers/aims.md"
#: What stands around the figures in a page; where a page has several such places, each has a name.
BEGIN, END = "<!-- figures{} -->", "<!-- end of the figures{} -->"


def put_into(page: Path, text: str, name: str = "") -> None:
    """Put the figures in the place of those that the page has."""
    begin, end = (mark.format(f": {name}" if name else "") for mark in (BEGIN, END))
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    if not after:
        raise SystemExit(f"{page} has no place for the figures, between {begin} and {end}")
    page.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", encoding="utf-8")


def columns(table: str, count: int) -> str:
    """Return the first columns of a table: what users read, without what was aimed at."""
    return "\n".join("|".join(line.split("|")[: count + 1]) + "|" for line in table.splitlines())


def machine() -> str:
    """Return what the figures were measured on, in a few words."""
    kernel = f"Linux {platform.release()}, Python {platform.python_version()}"
    return f"{_processor()} ({platform.machine()}), {os.cpu_count()} processors, {kernel}"


def _processor() -> str:
    """Return what the system calls the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
