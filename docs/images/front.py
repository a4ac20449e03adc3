"""The pictures of the first page, each for light pages and for dark ones: what it is, and how fast."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
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


LIGHT = Palette("#1f2937", "#4b5563", "#9ca3af", "#4051b5", "#dcfce7", "#fef3c7", "#4051b5")
DARK = Palette("#e5e7eb", "#a3aab8", "#6b7280", "#5468d4", "#1f4d36", "#57451a", "#8f9ff2")


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


#: So many pixels are the time that rankwise takes, and a bar of more than that many times breaks off.
TIME_PX, MOST_TIMES = 34, 8.0


def speed(palette: Palette) -> Picture:
    """How long others take where rankwise takes 1."""
    title = "How long a call takes in Open MPI and in torch's gloo, where it takes 1 in rankwise"
    groups = rows()
    p = Picture(480, 24 + sum(42 + 24 * (1 + len(ratios)) for _, ratios in groups), title, palette)
    p.text(4, 20, "Time of a call, relative to rankwise", 18, text_anchor="start", font_weight="600")
    y = 48.0
    for label, ratios in groups:
        p.text(4, y, label, 16, text_anchor="start", fill=palette.grey)
        for name, ratio in [("rankwise", 1.0), *ratios]:
            y += 24
            bar(p, y, name, ratio)
        y += 42
    return p


def bar(p: Picture, y: float, name: str, ratio: float) -> None:
    """Draw a row: who, and how long that takes."""
    ours = name == "rankwise"
    fill, weight = (p.palette.good, "700") if ours else (p.palette.grey, "400")
    p.text(4, y, name, 16, text_anchor="start", font_weight=weight)
    end = 110 + TIME_PX * min(ratio, MOST_TIMES)
    pieces = [(110.0, end)] if ratio <= MOST_TIMES else [(110.0, end - 40), (end - 34, end - 24), (end - 18, end)]
    for left, right in pieces:
        p.parts.append(f'<rect x="{left:g}" y="{y - 13:g}" width="{right - left:.1f}" height="14" fill="{fill}"/>')
    p.text(end + 8, y, "1" if ours else f"{ratio:g}x", 16, text_anchor="start", font_weight=weight)


def rows() -> list[tuple[str, list[tuple[str, float]]]]:
    """Return the ratios of the page on performance for gloo as pip installs it: a label, and the ratio of each peer."""
    table = (DOCS / "performance.md").read_text()
    labels = {
        "`gloo`, two ranks on one host, up to 64 KiB": "one host, arrays up to 64 KiB",
        "`gloo`, two ranks on one host, from 1 MiB": "one host, arrays from 1 MiB",
    }
    found = []
    for row, label in labels.items():
        cells = re.search(rf"^\| {row} \|(.*)\|(.*)\|(.*)\|$", table, re.MULTILINE)
        assert cells is not None, row
        ratios = [(peer, cells[n].strip().rstrip("x")) for n, peer in ((2, "Open MPI"), (1, "torch's gloo"))]
        found.append((label, [(peer, float(ratio)) for peer, ratio in ratios if ratio]))
    return found


def logo(palette: Palette) -> Picture:
    """Four ranks around a core."""
    p = Picture(64, 64, "rankwise", palette)
    for x, y in ((12, 12), (52, 12), (12, 52), (52, 52)):
        p.rule(32, 32, x, y, 4)
        p.parts.append(f'<circle cx="{x}" cy="{y}" r="9" fill="{palette.good}"/>')
    p.parts.append(f'<circle cx="32" cy="32" r="13" fill="{palette.core}"/>')
    return p


FRONT: tuple[Callable[[Palette], Picture], ...] = (what, speed, logo)


def front() -> dict[str, str]:
    """Return the pictures by the names of their files."""
    schemes = (("", LIGHT), ("-dark", DARK))
    return {f"{draw.__name__}{end}.svg": draw(palette).svg() for draw in FRONT for end, palette in schemes}
