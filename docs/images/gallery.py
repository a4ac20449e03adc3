"""Draw what the programs of the gallery compute on four ranks; with --check, only tell which pictures are stale.

Each program's function is called as in the program, in some with inputs that make more of a picture.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from draw import GREY, INK, LINE, Drawing

import rankwise as dist
from rankwise_testing import run_ranks

HERE = Path(__file__).parent
GALLERY = HERE.parents[1] / "examples/gallery"
#: The colour of each rank, fit for the colour-blind; and that of what belongs to none.
RANKS = ("#0072b2", "#d55e00", "#009e73", "#b0558f")
PLAIN, HOT = "#4051b5", "#c2410c"
#: A picture, and what is drawn in it.
WIDE, HIGH, LEFT, TOP = 520, 210, 24, 32

Point = tuple[float, float]
#: What the ranks have computed, in their order.
Parts = Sequence[Any]


def program(name: str) -> Any:
    """Return a program of the gallery, as a module."""
    return import_module(name)


def slit() -> Any:
    """Return an image of a bright rectangle."""
    image = np.zeros((24, 32))
    image[8:16, 14:18] = 1
    return image


def waves() -> tuple[Any, Any]:
    """Return two matrices of smooth numbers."""
    down, across = np.mgrid[0:16, 0:16] / 5
    return np.sin(down) * np.cos(across) + 1, np.cos(down - across) + 1


def examples() -> tuple[Any, Any]:
    """Return what the network learns from: places, and how high it is there."""
    x = np.random.default_rng(6).uniform(-1, 1, (300, 2))
    return x, np.sin(2 * x.sum(1, keepdims=True))


def computed() -> dict[str, Any]:
    """Return what this rank has of the result of each program."""
    sys.path.insert(0, str(GALLERY))
    with dist.world("gloo") as world:
        rank, random = world.rank(), np.random.default_rng
        plate, numbers = random(1).random((24, 24)), random(2)
        a, b = numbers.random((50, 50)) + 50 * np.eye(50), numbers.random(50)
        clusters = random(7)
        points = clusters.normal(10 * clusters.integers(0, 4, (4000, 2)), 1)
        mine, particles = random(rank).random(1000 + 10 * rank), random(8).random((4, 20, 3))[rank]
        return {
            "fft": program("fft").fft2(slit()),
            "heat": [program("heat").heat(plate, steps) for steps in (0, 10, 50)],
            "jacobi": program("jacobi").solve(a, b),
            "kmeans": (points, program("kmeans").kmeans(points, points[:4], 15)),
            "mlp": [program("mlp").train(*examples(), steps) for steps in (0, 50, 100, 200)],
            "prefix": program("prefix").running_sums(np.arange(1, 101)),
            "ring": (particles, program("ring").distances(particles)),
            "sort": (mine, program("sort").sort(mine)),
            "summa": program("summa").product(*waves()),
            "sweep": program("sweep").heights([(x, y) for y in np.linspace(0, 2, 22) for x in np.linspace(0, 2, 60)]),
            "tasks": program("tasks").longest(range(1, 1000)),
            "words": program("words").counted(program("words").TEXTS),
        }


# ---------------------------------------------------------------- what pictures are made of


def shade(colour: str, part: float) -> str:
    """Return one of nine colours between almost white, for 0, and a full one, for 1."""
    part = round(8 * min(1.0, max(0.0, part))) / 8
    return "#" + "".join(f"{round(240 + part * (int(colour[at : at + 2], 16) - 240)):02x}" for at in (1, 3, 5))


def shades(colour: str, values: Any, low: float, high: float) -> list[list[str]]:
    """Return a colour for each number of a table."""
    return [[shade(colour, (value - low) / (high - low)) for value in row] for row in values.tolist()]


def field(d: Drawing, x: float, y: float, side: float, colours: Sequence[Sequence[str]]) -> None:
    """Draw a square of each colour of a table; all of one colour are one path."""
    paths: dict[str, str] = {}
    for row, line in enumerate(colours):
        at = 0
        for colour, same in groupby(line):
            wide = len([*same])
            corner = f"M{x + at * side:g} {y + row * side:g}"
            paths[colour] = paths.get(colour, "") + f"{corner}h{wide * side:g}v{side:g}h-{wide * side:g}z"
            at += wide
    d.parts += [f'<path shape-rendering="crispEdges" fill="{fill}" d="{path}"/>' for fill, path in paths.items()]


def dots(d: Drawing, points: Iterable[Point], colour: str, wide: float = 4) -> None:
    """Draw points, which are one path."""
    path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)
    d.parts.append(f'<path stroke="{colour}" stroke-width="{wide:g}" stroke-linecap="round" d="{path}"/>')


def bars(d: Drawing, sizes: Iterable[tuple[float, float, float]], wide: float, colour: str) -> None:
    """Draw bars: where each is, where it ends, and how far it goes down from there."""
    path = "".join(f"M{x:.1f} {y:.1f}h{wide:g}v{high:.1f}h-{wide:g}z" for x, y, high in sizes)
    d.parts.append(f'<path fill="{colour}" d="{path}"/>')


def frame(d: Drawing, x: float, y: float, w: float, h: float, colour: str = INK) -> None:
    """Draw the outline of a place."""
    d.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" fill="none" stroke="{colour}"/>')


def legend(d: Drawing) -> None:
    """Say which colour is which rank's."""
    for rank, colour in enumerate(RANKS):
        x = WIDE / 2 - 150 + 80 * rank
        dots(d, [(x, HIGH - 14)], colour, 10)
        d.text(x + 34, HIGH - 10, f"rank {rank}", 12, GREY)


def shares(length: int) -> list[range]:
    """Return the places of each rank, of so many."""
    return [range(int(part[0]), int(part[-1]) + 1) for part in np.array_split(np.arange(length), len(RANKS))]


# ---------------------------------------------------------------- the pictures


def fft(parts: Parts) -> Drawing:
    d = Drawing(WIDE, HIGH, "An image, and the logarithm of its transform, of which each rank has six rows")
    d.text(LEFT + 112, 22, "an image", 12, GREY)
    field(d, LEFT, TOP, 6, shades(PLAIN, slit(), 0, 1))
    d.text(WIDE - LEFT - 112, 22, "its transform", 12, GREY)
    for rank, rows in enumerate(parts):
        colours = shades(RANKS[rank], np.log10(np.maximum(np.abs(rows), 0.1)), -1, 1.6)
        field(d, WIDE - LEFT - 208, TOP + 36 * rank, 6, colours)
    legend(d)
    return d


def heat(parts: Parts) -> Drawing:
    d = Drawing(WIDE, HIGH - 16, "A plate in the blocks of four ranks, before the first step, and after 10 and 50")
    for number, words in enumerate(("before the first step", "after 10 steps", "after 50 steps")):
        left = LEFT + 164 * number
        d.text(left + 74, 22, words, 12, GREY)
        for blocks in parts:
            block, (rows, columns) = blocks[number]
            x, y = (6 * axis.start + 4 * (axis.start > 0) for axis in (columns, rows))
            field(d, left + x, TOP + y, 6, shades(HOT, block, 0, 0.8))
    return d


def jacobi(parts: Parts) -> Drawing:
    d = Drawing(WIDE, HIGH, "The solution, of which each rank computes some numbers")
    x, scale = parts[0], 140 / float(np.ptp(np.append(parts[0], 0)))
    zero = TOP + scale * float(max(x.max(), 0))
    for rank, rows in enumerate(shares(len(x))):
        heights = [(row, scale * float(x[row])) for row in rows]
        bars(d, [(LEFT + 9.5 * row, zero - max(high, 0), abs(high)) for row, high in heights], 8, RANKS[rank])
    d.text(WIDE / 2, 22, "x[0] to x[49]", 12, GREY)
    legend(d)
    return d


def kmeans(parts: Parts) -> Drawing:
    d = Drawing(WIDE, HIGH, "Points in the colour of the nearest of four centres")
    points, centres = parts[0]
    nearest = ((points[:, None] - centres) ** 2).sum(2).argmin(1)

    def placed(found: Any) -> list[Point]:
        return [(LEFT + 30 + 12 * x, HIGH - 30 - 4.6 * y) for x, y in found.tolist()]

    for number, colour in enumerate(RANKS):
        dots(d, placed(points[::5][nearest[::5] == number]), colour, 3)
    dots(d, placed(centres), INK, 16)
    dots(d, placed(centres), "#ffffff", 8)
    return d


def mlp(parts: Parts) -> Drawing:
    d = Drawing(WIDE, HIGH - 72, "What the network has learned after 0, 50, 100 and 200 steps, and what it should")
    axis = np.linspace(-1, 1, 22)
    places = np.array([(x, y) for y in axis for x in axis])
    learned = [np.tanh(places @ first) @ last for first, last in parts[0]]
    captions = (*(f"{steps} steps" for steps in (0, 50, 100, 200)), "the aim")
    for number, (words, values) in enumerate(zip(captions, [*learned, np.sin(2 * places.sum(1))], strict=True)):
        left = LEFT + 96 * number
        d.text(left + 44, 22, words, 12, GREY)
        field(d, left, TOP, 4, shades(PLAIN, values.reshape(22, 22), -1, 1))
        frame(d, left, TOP, 88, 88, LINE)
    return d


def prefix(parts: Parts) -> Drawing:
    d = Drawing(WIDE, HIGH, "The running sums of 1 to 100, of which each rank has a quarter")
    sums = parts[0].tolist()
    for rank, places in enumerate(shares(len(sums))):
        heights = [(place, 145 * sums[place] / sums[-1]) for place in places]
        bars(d, [(LEFT + 4.7 * place, TOP + 145 - high, high) for place, high in heights], 4, RANKS[rank])
    d.text(WIDE - 60, 22, str(sums[-1]), 12, GREY)
    legend(d)
    return d


def ring(parts: Parts) -> Drawing:
    d = Drawing(WIDE, HIGH, "Particles of four ranks; the farther one is from all others, the larger it is")
    sums = np.concatenate([each for _, each in parts])
    for rank, (particles, apart) in enumerate(parts):
        for (x, y, _), size in zip(particles.tolist(), (apart - sums.min()) / np.ptp(sums), strict=True):
            dots(d, [(LEFT + 10 + 450 * x, TOP - 8 + 150 * y)], RANKS[rank], round(4 + 12 * float(size), 1))
    legend(d)
    return d


def sort(parts: Parts) -> Drawing:
    d = Drawing(WIDE, HIGH, "The numbers of four ranks: anywhere before, in a range of each rank's own after")
    for number, words in enumerate(("before", "after")):
        left = LEFT + 246 * number
        d.text(left + 113, 22, words, 12, GREY)
        for rank, each in enumerate(parts):
            frame(d, left, TOP + 37 * rank, 226, 30, LINE)
            bars(d, [(left + 225 * x, TOP + 37 * rank, 30) for x in each[number][::15].tolist()], 0.8, RANKS[rank])
    legend(d)
    return d


def summa(parts: Parts) -> Drawing:
    d = Drawing(WIDE, HIGH, "Two matrices, in each a panel that travels, and the product in the blocks of four ranks")
    for number, (words, matrix) in enumerate(zip(("first", "second"), waves(), strict=True)):
        d.text(LEFT + 164 * number + 64, 22, words, 12, GREY)
        field(d, LEFT + 164 * number, TOP, 8, shades(PLAIN, matrix, -0.5, 2))
    frame(d, LEFT + 32, TOP, 32, 128)
    frame(d, LEFT + 164, TOP + 32, 128, 32)
    d.text(LEFT + 146, TOP + 69, "\N{MULTIPLICATION SIGN}", 20, INK)
    d.text(LEFT + 310, TOP + 69, "=", 20, INK)
    d.text(LEFT + 328 + 66, 22, "product", 12, GREY)
    high = max(float(block.max()) for block, _ in parts)
    for rank, (block, (rows, columns)) in enumerate(parts):
        x, y = (8 * axis.start + 4 * (axis.start > 0) for axis in (columns, rows))
        field(d, LEFT + 328 + x, TOP + y, 8, shades(RANKS[rank], block, -4, high))
    legend(d)
    return d


def sweep(parts: Parts) -> Drawing:
    d = Drawing(WIDE, HIGH, "The heights at all points, and the highest")
    heights = np.array(parts[0]).reshape(22, 60)
    row, column = np.unravel_index(heights.argmax(), heights.shape)
    field(d, LEFT - 4, 17, 8, shades("#14532d", heights, heights.min(), heights.max()))
    dots(d, [(LEFT + 8 * int(column), 21 + 8 * int(row))], "#facc15", 12)
    return d


def tasks(parts: Parts) -> Drawing:
    d = Drawing(WIDE, HIGH, "How many steps each number takes, and the longest")
    counts = [(number, program("tasks").steps(number)) for number in range(1, 1000)]

    def placed(number: int, count: int) -> Point:
        return LEFT + 0.47 * number, HIGH - 20 - 0.95 * count

    longest = next(pair for pair in counts if pair[1] == parts[0])
    dots(d, [placed(*pair) for pair in counts], PLAIN, 2.5)
    dots(d, [placed(*longest)], HOT, 9)
    x, y = placed(*longest)
    d.text(x, y - 9, f"{longest[0]} takes {longest[1]} steps", 12)
    return d


def words(parts: Parts) -> Drawing:
    d = Drawing(WIDE, HIGH, "The most frequent words")
    counts = sorted(parts[0].items(), key=lambda pair: (-pair[1], pair[0]))[:8]
    for number, (word, count) in enumerate(counts):
        y = 16 + 23 * number
        bars(d, [(LEFT + 70, y, 16)], 3.6 * count, PLAIN)
        d.text(LEFT + 32, y + 13, word, 13)
        d.text(LEFT + 90 + 3.6 * count, y + 13, str(count), 12, GREY)
    return d


DRAWINGS = (fft, heat, jacobi, kmeans, mlp, prefix, ring, sort, summa, sweep, tasks, words)


def main() -> int:
    """Write the pictures, or tell which are stale."""
    sys.path.insert(0, str(GALLERY))
    found = run_ranks(computed, len(RANKS))
    paths = {HERE / f"gallery/{draw.__name__}.svg": draw([each[draw.__name__] for each in found]) for draw in DRAWINGS}
    stale = {path: d.svg() for path, d in paths.items() if not path.exists() or path.read_text() != d.svg()}
    if "--check" in sys.argv:
        print("\n".join(f"{path.name} is stale: run docs/images/gallery.py" for path in stale))
        return bool(stale)
    for path, text in stale.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
