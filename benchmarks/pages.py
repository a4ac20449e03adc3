"""What measured tables have in common: the machine they were measured on, and their place in a page of docs/."""

from __future__ import annotations

import os
import platform
from pathlib import Path

#: What stands around the figures in a page.
BEGIN, END = "<!-- figures -->", "<!-- end of the figures -->"


def put_into(page: Path, text: str) -> None:
    """Put the figures in the place of those that the page has."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise SystemExit(f"{page} has no place for the figures, between {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text.strip()}\n\n{END}{after}", encoding="utf-8")


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
