"""The pictures of the first page, each for light pages and for dark ones: what it is, how fast, what an error says."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from math import log10
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[1]
SANS = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"


class Palette(NamedTuple):
    """The colours of a scheme; there is no ground, so that the page's own is seen."""

    ink: str
    grey: str
    line: str
    core: str
    plugin: str
    below: str
    good: str
    bad: str
    marked: str


LIGHT = Palette("#1f2937", "#4b5563", "#9ca3af", "#4051b5", "#dcfce7", "#fef3c7", "#4051b5", "#b45309", "#b91c1c")
DARK = Palette("#e5e7eb", "#a3aab8", "#6b7280", "#5468d4", "#1f4d36", "#57451a", "#8f9ff2", "#e0a458", "#ff8a80")


class Picture:
    """An SVG without a ground."""

    def __init__(self, width: int, height: int, title: str, palette: Palette) -> None:
        self.width, self.height, self.title, self.palette = width, height, title, palette
        self.parts: list[str] = []

    def text(self, x: float, y: float, words: str, size: int = 18, **more: str) -> None:
        settings = {"fill": self.palette.ink, "text_anchor": "middle", **more}
        listed = " ".join(f'{name.replace("__", ":").replace("_", "-")}="{value}"' for name, value in settings.items())
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" {listed}>{escape(words)}</text>')
        wide = (0.61 if settings.get("font_family") == MONO else 0.56) * size * len(words)
        left = x - {"start": 0.0, "middle": 0.5, "end": 1.0}[settings["text_anchor"]] * wide
        if left < 0 or left + wide > self.width:
            raise ValueError(f"{words!r} does not fit into the picture")

    def box(self, x: float, y: float, w: float, h: float, fill: str, dash: str = "") -> None:
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="8" fill="{fill}" '
            f'stroke="{self.palette.line}"{dashes}/>'
        )

    def rule(self, x1: float, y1: float, x2: float, y2: float, width: float = 1.5) -> None:
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{self.palette.line}" '
            f'stroke-width="{width:g}"/>'
        )

    def svg(self) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" role="img" font-family="{SANS}">\n<title>{escape(self.title)}</title>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def what(palette: Palette) -> Picture:
    """The plugins around the core."""
    title = "rankwise: arrays above, plugins below, and the calls of torch.distributed between them"
    p = Picture(480, 388, title, palette)
    arrays = ("NumPy", "CuPy", "torch (CPU)", "memoryview")
    for number, name in enumerate(arrays):
        p.box(4 + 119 * number, 12, 115, 44, "none")
        p.text(61 + 119 * number, 40, name, 16)
        p.rule(61 + 119 * number, 56, 61 + 119 * number, 84)
    p.box(4, 84, 472, 128, palette.core)
    p.text(240, 118, "rankwise", 24, fill="#ffffff", font_weight="700")
    for number, calls in enumerate(("all_reduce  broadcast  all_gather", "send  recv  new_group  Work")):
        p.text(240, 146 + 24 * number, calls, 16, fill="#ffffff", font_family=MONO, xml__space="preserve")
    p.text(240, 198, "checks, compares, watches: the same for every backend", 15, fill="#e0e4ff")
    plugins = (
        ("gloo", ("memory", "and TCP")),
        ("mpi", ("Open MPI", "or MPICH")),
        ("nccl", ("NVIDIA", "GPUs")),
        ("yours", ("about", "80 lines")),
    )
    for number, (name, below) in enumerate(plugins):
        x = 4 + 119 * number
        p.rule(x + 57, 212, x + 57, 244, 6)
        p.box(x, 244, 115, 58, palette.plugin, "6 4" * (name == "yours"))
        p.text(x + 57, 280, name, 22, font_weight="600")
        for line, words in enumerate(below):
            p.text(x + 57, 326 + 20 * line, words, 16, fill=palette.grey)
    p.text(240, 378, 'each by itself: pip install "rankwise[gloo]"', 17, fill=palette.grey)
    return p


def speed(palette: Palette) -> Picture:
    """How many times as fast as its peers, on an axis on which twice and half are as far from the middle."""
    title = "How many times faster than torch's gloo and Open MPI (log scale)"
    p = Picture(480, 430, title, palette)
    middle, per_decade = 130.0, 120.0
    for line, words in enumerate(("How many times faster than torch's gloo", "and Open MPI (log scale)")):
        p.text(4, 24 + 24 * line, words, 18, text_anchor="start", font_weight="600")
    for factor, words in ((1.0, "as fast"), (10.0, "10 times"), (100.0, "100 times")):
        x = middle + per_decade * log10(factor)
        p.rule(x, 90, x, 382, 2.5 if factor == 1 else 1)
        p.text(x, 82, words, 15, fill=palette.grey)
    y = 114.0
    for label, ratios in rows():
        for line, words in enumerate(label.split(", ")):
            p.text(4, y + 15 + 20 * line, words, 16, text_anchor="start")
        for (peer, ratio), at in zip(ratios, (y, y + 22), strict=False):
            end = middle + per_decade * log10(ratio)
            colour = palette.good if peer == "torch" else palette.bad
            left, wide = min(middle, end), abs(end - middle)
            p.parts.append(f'<rect x="{left:.1f}" y="{at:g}" width="{wide:.1f}" height="18" fill="{colour}"/>')
            side = {"text_anchor": "start"} if ratio >= 1 else {"text_anchor": "end"}
            p.text(end + (8 if ratio >= 1 else -8), at + 15, f"{ratio:g}x", 16, fill=colour, font_weight="600", **side)
        y += 68
    for x, words, colour in ((130.0, "torch 2.13, gloo", palette.good), (320.0, "Open MPI 5", palette.bad)):
        p.parts.append(f'<rect x="{x:g}" y="402" width="16" height="16" fill="{colour}"/>')
        p.text(x + 24, 416, words, 16, text_anchor="start", fill=palette.grey)
    return p


def rows() -> list[tuple[str, list[tuple[str, float]]]]:
    """Return what the table of the page on performance says of the backend gloo: a label, and the ratios by peer."""
    table = (DOCS / "performance.md").read_text()
    labels = {
        "`gloo` with `rankwise-native`, two ranks on one host, up to 64 KiB": "one host, small arrays",
        "`gloo` with `rankwise-native`, two ranks on one host, from 1 MiB": "one host, large arrays",
        "`gloo`, two hosts, up to 64 KiB": "two hosts, small arrays",
        "`gloo`, two hosts, from 1 MiB": "two hosts, large arrays",
    }
    found = []
    for row, label in labels.items():
        cells = re.search(rf"^\| {row} \|(.*)\|(.*)\|(.*)\|$", table, re.MULTILINE)
        assert cells is not None, row
        ratios = [(peer, cells[n].strip().rstrip("x")) for n, peer in ((1, "torch"), (2, "mpi"))]
        found.append((label, [(peer, float(ratio)) for peer, ratio in ratios if ratio]))
    return found


#: What each rank says where rank 2 brings one number too many, and what of that is worth a second look.
_PROGRAM = (("$ rankwise run -n 4 train.py", "grey"),)
_ERROR = (
    ('  File "train.py", line 6, in <module>', "ink"),
    ("    dist.all_reduce(array)", "ink"),
    ("CollectiveMismatchError: the ranks of group", "marked"),
    ("'default' did not make the same call:", "marked"),
    ("  rank 2 called all_reduce(SUM, float32,", "bad"),
    ("    shape (4,)) at train.py:6, its", "bad"),
    ("    collective number 0", "bad"),
    ("  ranks 0, 1, 3 called all_reduce(SUM,", "ink"),
    ("    float32, shape (3,)) at train.py:6, its", "ink"),
    ("    collective number 0", "ink"),
)


def error(palette: Palette) -> Picture:
    """What an error looks like."""
    p = Picture(480, 400, "An error names the rank that differs, what each rank called, and where", palette)
    p.box(4, 8, 472, 348, "none")
    for number, colour in enumerate((palette.marked, palette.bad, palette.good)):
        p.parts.append(f'<circle cx="{24 + 22 * number}" cy="28" r="6" fill="{colour}"/>')
    for number, (line, colour) in enumerate([*_PROGRAM, *_ERROR]):
        fill = getattr(palette, colour)
        p.text(16, 64 + 27 * number, line, 16, text_anchor="start", font_family=MONO, fill=fill, xml__space="preserve")
    p.text(240, 388, "on every rank alike, at once: no garbage, no hang", 17, fill=palette.grey)
    return p


def logo(palette: Palette) -> Picture:
    """Four ranks around a core."""
    p = Picture(64, 64, "rankwise", palette)
    for x, y in ((12, 12), (52, 12), (12, 52), (52, 52)):
        p.rule(32, 32, x, y, 4)
        p.parts.append(f'<circle cx="{x}" cy="{y}" r="9" fill="{palette.good}"/>')
    p.parts.append(f'<circle cx="32" cy="32" r="13" fill="{palette.core}"/>')
    return p


FRONT: tuple[Callable[[Palette], Picture], ...] = (what, speed, error, logo)


def front() -> dict[str, str]:
    """Return the pictures by the names of their files."""
    schemes = (("", LIGHT), ("-dark", DARK))
    return {f"{draw.__name__}{end}.svg": draw(palette).svg() for draw in FRONT for end, palette in schemes}
