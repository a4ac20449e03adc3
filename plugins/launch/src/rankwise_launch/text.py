"""Plain tables and marked words for the terminal; nothing here needs more than the standard library."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from typing import IO

_STYLES = {"good": 32, "bad": 31, "warn": 33, "dim": 2, "bold": 1}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_RATES = ((1e15, "PB/s"), (1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s"))
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def use_colour(stream: IO[str] | None) -> bool:
    """Tell whether to write colours to a stream: only to a terminal, and never with `NO_COLOR`."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return wanted and stream is not None and stream.isatty()


def marked(text: str, style: str) -> str:
    """Return the text in a style (good, bad, warn, dim, bold) where stdout shows colours, else as it is."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if use_colour(sys.stdout) else text


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Lay out rows, the first of which is the head; `right` names the columns that are numbers."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]

    def line(row: Sequence[str]) -> str:
        cells = (c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        return "  ".join(cells).rstrip()

    head, *body = rows
    return "\n".join([line(head), "  ".join("-" * width for width in widths), *map(line, body)])


def parse_nbytes(text: str) -> int:
    """Parse a number of bytes such as 1024, 64KiB, 64K, 1.5MiB or 1GB (all powers of 1024).

    Raises:
        ValueError: It is none.
    """
    number = text.strip().upper().removesuffix("B").removesuffix("I")
    power = "KMGT".find(number[-1:]) + 1 if number else 0
    try:
        value = float(number[:-1] if power else number) * 1024**power
        if not 0 <= value < 1 << 60:
            raise ValueError
    except ValueError:
        raise ValueError(f"{text!r} is not a number of bytes; write it like 4096, 64KiB or 1GiB") from None
    return int(value)


def format_nbytes(nbytes: float) -> str:
    """Write a number of bytes in the largest unit that leaves at least 1."""
    scales = [(1024.0**power, unit) for power, unit in enumerate(_UNITS)]
    return _written(nbytes, scales[::-1], 4)


def format_rate(bytes_per_s: float) -> str:
    """Write a bandwidth in the decimal unit that suits it, as networks are measured."""
    return _written(bytes_per_s, _RATES, 4)


def format_seconds(seconds: float) -> str:
    """Write a time, which may be less than nothing, in the unit that suits it: three digits and no exponent."""
    return _written(seconds, _TIMES, 3, zero="0 us")


def _written(value: float, scales: Sequence[tuple[float, str]], digits: int, zero: str = "") -> str:
    """Write a value in the largest unit of which it has at least one, rounded first: 0.9996 ms are 1 ms."""
    zero = zero or f"0 {scales[-1][1]}"
    if not math.isfinite(value):
        return "unknown" if math.isnan(value) else f"{value} {scales[0][1]}"
    for scale, unit in scales:
        rounded = float(f"{value / scale:.{digits}g}")
        if abs(rounded) >= 1:
            many = abs(rounded) >= 10 ** (digits - 1)
            return f"{value / scale:.0f} {unit}" if many else f"{rounded:.{digits}g} {unit}"
    smallest, unit = scales[-1]
    part = round(value / smallest, digits - 1)
    return f"{part:g} {unit}" if part else zero


def counted(number: int, what: str) -> str:
    """Write how many there are of something: 1 rank, 8 ranks."""
    return f"{number} {what}{'s' * (number != 1)}"


def meanwhile(words: str = "") -> None:
    """Say on standard error what takes long, in a line that the next call replaces; nothing where nobody looks."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        sys.stderr.write(f"\r\x1b[K{words}")
        sys.stderr.flush()
