"""Numbers and tables as the command line writes and reads them."""

from __future__ import annotations

import math
import re

import pytest

from rankwise_launch.text import (
    _RATES,
    _UNITS,
    columns,
    counted,
    format_nbytes,
    format_rate,
    format_seconds,
    parse_nbytes,
)


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        *((parse_nbytes, text, nbytes) for text, nbytes in (("0", 0), ("8B", 8), ("1.5MiB", 3 << 19), ("1g", 1 << 30))),
        *((parse_nbytes, text, 65536) for text in ("64KiB", "64K", "64kb")),
        *((format_nbytes, 0, "0 B"), (format_nbytes, 1023, "1023 B"), (format_nbytes, 1 << 10, "1 KiB")),
        *((format_nbytes, 3 << 19, "1.5 MiB"), (format_nbytes, 1048565, "1 MiB"), (format_nbytes, 1 << 50, "1 PiB")),
        *((format_seconds, 2.5, "2.5 s"), (format_seconds, 0.0125, "12.5 ms"), (format_seconds, 3e-6, "3 us")),
        *((format_seconds, 0.0, "0 us"), (format_seconds, -0.9996e-3, "-1 ms"), (format_seconds, 12345.6, "12346 s")),
        *((format_seconds, 2e-10, "0.2 ns"), (format_rate, 12, "12 B/s"), (format_rate, 1e3, "1 kB/s")),
        *((format_rate, 2.5e9, "2.5 GB/s"), (format_rate, 1e12, "1 TB/s")),
    ],
)
def test_figures_are_read_and_written_in_the_unit_that_suits(function, value, expected):
    assert function(value) == expected


@pytest.mark.parametrize("text", ["", "KiB", "-1", "1x", "nan", "inf", "1e300", "0x10"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="is not a number of bytes"):
        parse_nbytes(text)


@pytest.mark.parametrize(("number", "text"), [(0, "0 ranks"), (1, "1 rank"), (8, "8 ranks")])
def test_things_are_counted_as_people_do(number, text):
    assert counted(number, "rank") == text


def test_columns_are_as_wide_as_their_widest_cell():
    assert columns([["a", "size"], ["long", "1"]], right=[1]) == "a     size\n----  ----\nlong     1"


POWERS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9} | {unit: 1024.0**n for n, unit in enumerate(_UNITS)}
POWERS |= {unit: scale for scale, unit in _RATES if unit != "B"}


@pytest.mark.parametrize("write", [format_seconds, format_nbytes, format_rate])
@pytest.mark.parametrize("power", range(-12, 21))
def test_what_is_written_is_what_is_meant_at_each_magnitude_and_sign(write, power):
    for digits in (1.0, 1.0004, 1.5, 2.345678, 9.9949, 9.99951, 9.9999):
        check_written(write, digits * 10.0**power)
        check_written(write, -digits * 10.0**power)
        written = write(digits * 10.0**power)
        assert write(-digits * 10.0**power).lstrip("-") == written


def check_written(write, value):
    written = write(value)
    shown = re.fullmatch(r"(-?\d+(?:\.\d+)?) (\S+)", written)
    assert shown, written
    number, scale = float(shown[1]), POWERS[shown[2]]
    least = {format_seconds: 1e-9, format_nbytes: 1.0, format_rate: 1.0}[write]
    if scale in ("ms", "us", "ns"):
        assert abs(number) < 1000, f"{written} has a larger unit"
    if abs(value) >= least:
        assert number * scale == pytest.approx(value, rel=0.006), written
        assert abs(number) >= 1, f"{written} has a smaller unit"
    else:
        assert number * scale == pytest.approx(value, abs=least / 100), written


@pytest.mark.parametrize("write", [format_seconds, format_nbytes, format_rate])
def test_what_is_no_number_is_unknown(write):
    assert write(math.nan) == "unknown"
    assert write(math.inf).startswith("inf ")
    assert write(-math.inf).startswith("-inf ")
