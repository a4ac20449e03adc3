"""Two panels of curves, latency and bandwidth over size, with logarithmic axes; SVG by hand, PNG by matplotlib."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from rankwise_launch.toolbox import format_nbytes, format_rate, format_seconds

__all__ = ["Curves", "check_plot", "write_plot"]

#: For each name its points: size in bytes, latency in seconds, bandwidth in bytes a second.
Curves = Mapping[str, Sequence[tuple[float, float, float]]]

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#332288", "#882255")
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 420, 300, 70, 60, 110


def check_plot(path: Path) -> None:
    """Find out, before anything is measured, whether a plot can be written.

    Raises:
        ValueError: The ending is neither .svg nor .png, a PNG needs a matplotlib that is not there, or the folder is
            not there.
    """
    if path.suffix not in (".svg", ".png"):
        raise ValueError(f"{path} must end in .svg or .png")
    if path.suffix == ".png" and importlib.util.find_spec("matplotlib") is None:
        raise ValueError("a PNG needs matplotlib (pip install matplotlib); an SVG does not")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{path} cannot be written: there is no folder {path.parent}")


def write_plot(path: Path, title: str, curves: Curves) -> None:
    """Write the plot to a file; its ending says in which format."""
    if path.suffix == ".svg":
        path.write_text(_svg(title, curves), encoding="utf-8")
    else:
        _png(path, title, curves)


def _svg(title: str, curves: Curves) -> str:
    height = _TOP + _HEIGHT + 60 + 20 * len(curves)
    width = _LEFT + 2 * _WIDTH + _GAP + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="24" font-size="16" font-weight="bold">{escape(title)}</text>',
        *_panel(_LEFT, "latency", curves, 1, format_seconds),
        *_panel(_LEFT + _WIDTH + _GAP, "bandwidth", curves, 2, format_rate),
    ]
    for i, name in enumerate(curves):
        y = _TOP + _HEIGHT + 56 + 20 * i
        parts.append(f'<path d="M {_LEFT} {y} h 28" {_stroke(i)}/>')
        parts.append(f'<text x="{_LEFT + 36}" y="{y + 4}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(left: int, title: str, curves: Curves, column: int, shown: Any) -> list[str]:
    points = [point for curve in curves.values() for point in curve]
    low_x, high_x = _range([point[0] for point in points], 2)
    low_y, high_y = _range([point[column] for point in points], 10)

    def x(value: float) -> float:
        return left + _WIDTH * (math.log(value) - math.log(low_x)) / (math.log(high_x) - math.log(low_x))

    def y(value: float) -> float:
        return _TOP + _HEIGHT * (1 - (math.log(value) - math.log(low_y)) / (math.log(high_y) - math.log(low_y)))

    parts = [
        f'<text x="{left}" y="{_TOP - 12}" font-weight="bold">{title}</text>',
        f'<rect x="{left}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#888"/>',
    ]
    for value in _ticks(low_x, high_x, 2, 7):
        at = f"{x(value):.1f}"
        parts.append(f'<line x1="{at}" y1="{_TOP}" x2="{at}" y2="{_TOP + _HEIGHT}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{at}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{format_nbytes(value)}</text>')
    for value in _ticks(low_y, high_y, 10, 8):
        at = f"{y(value):.1f}"
        parts.append(f'<line x1="{left}" y1="{at}" x2="{left + _WIDTH}" y2="{at}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{left - 6}" y="{at}" dy="4" text-anchor="end">{shown(value)}</text>')
    for i, curve in enumerate(curves.values()):
        places = [(x(point[0]), y(point[column])) for point in curve]
        path = " ".join(f"{at:.1f},{up:.1f}" for at, up in places)
        parts.append(f'<polyline points="{path}" fill="none" {_stroke(i)}/>')
        parts += [f'<circle cx="{at:.1f}" cy="{up:.1f}" r="2.5" fill="{_colour(i)}"/>' for at, up in places]
    return parts


def _png(path: Path, title: str, curves: Curves) -> None:
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    points = [point for curve in curves.values() for point in curve]
    for axes, column, label, shown in zip(
        panels, (1, 2), ("latency", "bandwidth"), (format_seconds, format_rate), strict=True
    ):
        for i, (name, curve) in enumerate(curves.items()):
            line = "--" if i >= len(_COLOURS) else "-"
            axes.loglog(
                [p[0] for p in curve], [p[column] for p in curve], f"o{line}", ms=3, color=_colour(i), label=name
            )
        _scale(axes.xaxis, _range([p[0] for p in points], 2), 2, 7, format_nbytes)
        _scale(axes.yaxis, _range([p[column] for p in points], 10), 10, 8, shown)
        axes.set(xlabel="size", title=label)
        axes.grid(True, alpha=0.3)
    panels[0].legend()
    figure.suptitle(title)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _scale(axis: Any, ends: tuple[float, float], base: int, most: int, shown: Any) -> None:
    ticks = _ticks(*ends, base, most)
    axis.set_ticks(ticks, [shown(tick) for tick in ticks])
    axis.set_ticks([], minor=True)


def _range(values: Sequence[float], base: int) -> tuple[float, float]:
    """Return powers of the base that enclose the values."""
    low = base ** math.floor(math.log(min(values), base) + 1e-9)
    high = base ** math.ceil(math.log(max(values), base) - 1e-9)
    return float(low), float(high if high > low else low * base)


def _ticks(low: float, high: float, base: int, most: int) -> list[float]:
    count = round(math.log(high / low, base))
    step = -(-count // most)
    return [low * base**i for i in range(0, count + 1, step)]


def _stroke(index: int) -> str:
    # Once the colours are used up they come again, dashed.
    dashes = ' stroke-dasharray="6 4"' if index >= len(_COLOURS) else ""
    return f'stroke="{_colour(index)}" stroke-width="2"{dashes}'


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]
