"""Draw the pictures of the documentation; with --check, only tell whether they are stale.

Each has a light ground of its own, so that it is legible on a light page and on a dark one. Those of performance show
the figures of docs/native.md, in letters that are legible at half the size.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from math import log10
from pathlib import Path

from front import front

HERE = Path(__file__).parent
INK, GREY, LINE = "#1f2937", "#6b7280", "#9ca3af"
GROUND = "#f8fafc"
BLUE, GREEN, AMBER, ROSE, PLAIN = "#dbeafe", "#dcfce7", "#fef3c7", "#ffe4e6", "#ffffff"
STYLE = 'font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"'
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"


class Drawing:
    """One diagram: boxes, arrows and words, in the order in which they were drawn."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def text(self, x: float, y: float, words: str, size: int = 14, fill: str = INK, more: str = "") -> None:
        self.parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}" fill="{fill}" text-anchor="middle" {more}>{escape(words)}</text>'
        )

    def code(self, x: float, y: float, words: str, size: int = 12, fill: str = INK) -> None:
        self.text(x, y, words, size, fill, f'font-family="{MONO}"')

    def box(self, x: float, y: float, w: float, h: float, fill: str = PLAIN, dash: str = "") -> None:
        extra = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="6" fill="{fill}" stroke="{LINE}"{extra}/>'
        )

    def labelled(self, x: float, y: float, w: float, h: float, fill: str, head: str, *lines: str) -> None:
        self.box(x, y, w, h, fill)
        first = y + h / 2 - 8 * len(lines) + 5
        self.text(x + w / 2, first, head, 14, INK, 'font-weight="600"')
        for number, line in enumerate(lines, 1):
            self.text(x + w / 2, first + 17 * number, line, 12, GREY)

    def arrow(self, x1: float, y1: float, x2: float, y2: float, both: bool = False, colour: str = GREY) -> None:
        start = ' marker-start="url(#a)"' if both else ""
        self.parts.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="1.6"{start} '
            'marker-end="url(#a)"/>'
        )

    def cells(self, x: float, y: float, values: list[str], fills: list[str], side: int = 30) -> None:
        """Draw an array as a row of squares."""
        for number, (value, fill) in enumerate(zip(values, fills, strict=True)):
            left = x + number * side
            self.parts.append(
                f'<rect x="{left}" y="{y}" width="{side}" height="{side}" fill="{fill}" stroke="{LINE}"/>'
            )
            self.code(left + side / 2, y + side / 2 + 4, value, 12)

    def svg(self) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" role="img" {STYLE}>\n<title>{escape(self.title)}</title>\n'
            '<defs><marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="{GREY}"/></marker></defs>\n'
            f'<rect width="{self.width}" height="{self.height}" rx="10" fill="{GROUND}" stroke="#e5e7eb"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def call() -> Drawing:
    """The way of one call, from the program to the other ranks and back."""
    d = Drawing(760, 440, "One call, from the program to the other ranks")
    d.labelled(40, 24, 300, 50, BLUE, "your program", "all_reduce(array)")
    steps = [
        ("which group?", "the default one, or a warning for a non-member"),
        ("is the array fit?", "type, layout, writable: checked once, here"),
        ("who can do it?", "the device picks a lane; its table allows or refuses"),
    ]
    d.box(30, 96, 320, 176, "#eef2ff")
    d.text(190, 116, "core, about a microsecond", 12, GREY)
    for number, (head, line) in enumerate(steps):
        d.box(42, 124 + 48 * number, 296, 42)
        d.text(190, 141 + 48 * number, head, 13, INK, 'font-weight="600"')
        d.text(190, 157 + 48 * number, line, 10, GREY)
    d.labelled(40, 294, 300, 52, GREEN, "communicator of a backend", "all ranks compare the call, then bytes move")
    d.arrow(190, 74, 190, 95)
    d.arrow(190, 272, 190, 293)
    d.arrow(190, 346, 190, 367)
    d.labelled(40, 368, 300, 50, AMBER, "transport", "shared memory, sockets, MPI, NCCL")
    for number, rank in enumerate(("rank 1", "rank 2", "rank 3")):
        y = 282 + 50 * number
        d.labelled(560, y, 160, 38, AMBER, rank)
        d.arrow(341, 393, 559, y + 19, both=True, colour=LINE)
    d.labelled(430, 24, 290, 50, BLUE, "result", "in your own array; or a Work to wait for")
    d.labelled(
        430,
        124,
        290,
        70,
        ROSE,
        "or one error, on every rank",
        "CollectiveMismatchError, PeerDiedError,",
        "DistTimeoutError: who, what, where",
    )
    d.arrow(341, 312, 470, 195)
    d.arrow(341, 300, 440, 75)
    return d


def groups() -> Drawing:
    """A world of eight ranks and two ways to cut it."""
    d = Drawing(760, 330, "A world of eight ranks, and groups of some of them")
    d.text(380, 28, "the world: every rank of the job, on all hosts", 13, GREY)
    d.box(20, 40, 720, 270, PLAIN)
    for host in range(2):
        x = 40 + 350 * host
        d.box(x, 58, 330, 226, "#f1f5f9", "5 4")
        d.text(x + 165, 302, f"host {host}", 12, GREY)
    for rank in range(8):
        x = 56 + 80 * (rank % 4) + 350 * (rank // 4)
        d.box(x, 76, 58, 44, BLUE)
        d.text(x + 29, 96, f"rank {rank}", 13, INK, 'font-weight="600"')
        d.text(x + 29, 112, f"local {rank % 4}", 10, GREY)
    for host in range(2):
        x = 50 + 350 * host
        d.box(x, 138, 310, 44, GREEN)
        members = ", ".join(str(4 * host + i) for i in range(4))
        d.code(x + 155, 157, f"new_subgroups(group_size=4): [{members}]", 11)
        d.text(x + 155, 173, "one group for each host: fast neighbours", 11, GREY)
    d.box(50, 196, 660, 34, AMBER)
    d.code(380, 217, "new_group([0, 4]): group ranks 0 and 1 are the world's ranks 0 and 4", 11)
    d.box(50, 238, 660, 34, ROSE)
    d.code(380, 259, 'new_group([6, 2, 3], backend="mpi"): another order, another backend', 11)
    return d


def lanes() -> Drawing:
    """How the device of an array decides who carries it."""
    d = Drawing(760, 300, "Lanes: the device of an array decides who carries it")
    d.labelled(24, 40, 170, 56, BLUE, "NumPy array", "or a torch CPU tensor")
    d.labelled(24, 200, 170, 56, BLUE, "CuPy array", "on a GPU")
    d.box(250, 24, 220, 252, "#eef2ff")
    d.text(360, 46, "process group", 14, INK, 'font-weight="600"')
    d.code(360, 64, '"cpu:gloo,cuda:nccl"', 11, GREY)
    d.labelled(266, 84, 188, 60, PLAIN, "lane cpu", "table of gloo: yes")
    d.labelled(266, 190, 188, 60, PLAIN, "lane cuda", "table of nccl: yes")
    d.labelled(540, 84, 196, 60, GREEN, "communicator of gloo", "shared memory and sockets")
    d.labelled(540, 190, 196, 60, GREEN, "communicator of nccl", "streams of the GPU")
    d.arrow(194, 68, 265, 108)
    d.arrow(194, 228, 265, 220)
    d.arrow(454, 114, 539, 114)
    d.arrow(454, 220, 539, 220)
    d.text(360, 164, "what the table refuses is an", 11, GREY)
    d.text(360, 179, "UnsupportedOperationError at once", 9, GREY)
    return d


#: What three ranks have before and after a collective, each as letters and as colours.
_A, _B, _C, _S, _O = BLUE, GREEN, AMBER, ROSE, PLAIN
_PARTS = [[f"{r}{i}" for i in range(3)] for r in "abc"]
_OWN, _COLOURS = [["a"], ["b"], ["c"]], [[_A], [_B], [_C]]
MOVES: dict[str, tuple[str, list[list[str]], list[list[str]], list[list[str]], list[list[str]]]] = {
    "broadcast": ("broadcast(src=0)", [["a"], ["·"], ["·"]], [[_A], [_O], [_O]], [["a"]] * 3, [[_A]] * 3),
    "all_reduce": ("all_reduce", _OWN, _COLOURS, [["Σ"]] * 3, [[_S]] * 3),
    "reduce": ("reduce(dst=0)", _OWN, _COLOURS, [["Σ"], ["b"], ["c"]], [[_S], [_B], [_C]]),
    "all_gather": ("all_gather", _OWN, _COLOURS, [["a", "b", "c"]] * 3, [[_A, _B, _C]] * 3),
    "gather": ("gather(dst=0)", _OWN, _COLOURS, [["a", "b", "c"], ["-"], ["-"]], [[_A, _B, _C], [_O], [_O]]),
    "scatter": ("scatter(src=0)", [["a", "b", "c"], ["-"], ["-"]], [[_A, _B, _C], [_O], [_O]], _OWN, _COLOURS),
    "reduce_scatter": (
        *("reduce_scatter", _PARTS, [[_A] * 3, [_B] * 3, [_C] * 3]),
        *([[f"Σ{i}"] for i in range(3)], [[_S]] * 3),
    ),
    "all_to_all": (
        *("all_to_all", _PARTS, [[_A] * 3, [_B] * 3, [_C] * 3]),
        *([[f"{r}{i}" for r in "abc"] for i in range(3)], [[_A, _B, _C]] * 3),
    ),
}


def collectives() -> Drawing:
    """What the collectives move where, on three ranks."""
    d = Drawing(760, 470, "What the collectives move where")
    for number, (name, before, before_fill, after, after_fill) in enumerate(MOVES.values()):
        x, y = 24 + 370 * (number % 2), 22 + 112 * (number // 2)
        d.code(x + 170, y + 8, name, 13)
        for rank in range(3):
            line = y + 18 + 26 * rank
            d.text(x + 14, line + 17, str(rank), 11, GREY)
            d.cells(x + 34, line, before[rank], before_fill[rank], 24)
            d.arrow(x + 128, line + 12, x + 206, line + 12, colour=LINE)
            d.cells(x + 226, line, after[rank], after_fill[rank], 24)
    return d


def moves() -> dict[str, Drawing]:
    """What each call moves where, in a picture each, small enough for a row of a table."""
    drawn = {name: move(*picture) for name, picture in MOVES.items()}
    drawn["send"] = move(
        "send(dst=1), recv(src=0)", [["a"], ["·"]], [[_A], [_O]], [["a"], ["a"]], [[_A], [_A]], [(0, 1)]
    )
    ring = [["c"], ["a"], ["b"]], [[_C], [_A], [_B]]
    drawn["exchange"] = move("batch_isend_irecv", _OWN, _COLOURS, *ring, [(0, 1), (1, 2), (2, 0)])
    drawn["barrier"] = barrier()
    return drawn


def move(
    title: str,
    before: list[list[str]],
    before_fill: list[list[str]],
    after: list[list[str]],
    after_fill: list[list[str]],
    ways: Sequence[tuple[int, int]] = (),
) -> Drawing:
    """Draw what ranks have before and after a call; `ways` are arrows between ranks, else each has one."""
    d = Drawing(204, 6 + 26 * len(before), title)
    for rank in range(len(before)):
        line = 4 + 26 * rank
        d.text(9, line + 16, str(rank), 11, GREY)
        d.cells(20, line, before[rank], before_fill[rank], 24)
        d.cells(126, line, after[rank], after_fill[rank], 24)
    for source, target in ways or [(rank, rank) for rank in range(len(before))]:
        d.arrow(95 if not ways else 48, 16 + 26 * source, 123, 16 + 26 * target, colour=LINE)
    return d


def barrier() -> Drawing:
    """Three ranks that come one after the other, and go on together."""
    d = Drawing(204, 84, "barrier")
    for rank, came in enumerate((40, 96, 66)):
        line = 16 + 26 * rank
        d.text(9, line + 4, str(rank), 11, GREY)
        d.parts.append(f'<line x1="20" y1="{line}" x2="{came}" y2="{line}" stroke="{INK}" stroke-width="1.6"/>')
        d.parts.append(f'<line x1="{came}" y1="{line}" x2="104" y2="{line}" stroke="{LINE}" stroke-dasharray="2 3"/>')
        d.arrow(104, line, 190, line)
    d.parts.append(f'<line x1="104" y1="6" x2="104" y2="78" stroke="{INK}" stroke-width="3"/>')
    return d


def store() -> Drawing:
    """What a store is for: one rank sets a key, another gets it, and waits for it if it is early."""
    d = Drawing(760, 150, "A store: keys and values that the processes of a job share")
    d.labelled(24, 46, 190, 58, BLUE, "rank 0", 'set("address", value)')
    d.labelled(290, 30, 180, 90, GREEN, "store", "keys and values,", "counters, queues")
    d.labelled(546, 46, 190, 58, BLUE, "rank 1", 'get("address") waits')
    d.arrow(215, 75, 289, 75)
    d.arrow(471, 75, 545, 75)
    return d


def machines() -> Drawing:
    """Two nodes: launchers, ranks, and what crosses the network."""
    d = Drawing(760, 330, "A job on two machines")
    for node in range(2):
        x = 24 + 376 * node
        d.box(x, 24, 336, 270, "#f1f5f9", "5 4")
        d.text(x + 168, 314, f"node {node}", 13, GREY)
        d.labelled(x + 68, 40, 200, 48, BLUE, "rankwise run", f"--nnodes 2 --node-rank {node}")
        for local in range(2):
            left = x + 24 + 156 * local
            d.labelled(left, 136, 132, 52, PLAIN, f"rank {2 * node + local}", "your program")
            d.arrow(x + 168, 88, left + 66, 135)
        d.box(x + 24, 216, 288, 26, GREEN)
        d.text(x + 168, 233, "one host: shared memory, or Unix sockets", 12)
        for local in range(2):
            d.arrow(x + 90 + 156 * local, 189, x + 90 + 156 * local, 215, both=True)
    d.arrow(293, 56, 467, 56, both=True)
    d.text(380, 48, "port + 1: launchers", 11, GREY)
    d.arrow(337, 156, 423, 156, both=True)
    d.text(380, 126, "port:", 11, GREY)
    d.text(380, 140, "store of rank 0", 11, GREY)
    d.arrow(337, 178, 423, 178, both=True)
    d.text(380, 196, "free ports:", 11, GREY)
    d.text(380, 210, "arrays", 11, GREY)
    d.box(48, 256, 664, 26, ROSE)
    d.text(380, 273, "the job secret: proved on every connection before anything else is read", 12)
    return d


def engines() -> Drawing:
    """What starts ranks, what each rank has to be told, and what engine and group tell each other."""
    d = Drawing(760, 330, "Engines start ranks")
    heads = [("Slurm", "srun"), ("Kubernetes", "pods"), ("Dask", "rankwise_dask.run"), ("Ray", "rankwise_ray.run")]
    for number, (head, line) in enumerate([*heads, ("your engine", "fifty lines")]):
        d.labelled(24 + 144 * number, 24, 136, 52, BLUE, head, line)
        d.arrow(92 + 144 * number, 77, 92 + 144 * number, 103)
    d.box(24, 104, 712, 30, ROSE)
    d.text(380, 124, "rank and size, where to meet, the job secret: by variables, or by ProcessGroup.create", 12)
    for rank in range(4):
        x = 56 + 168 * rank
        d.arrow(x + 72, 135, x + 72, 163)
        d.labelled(x, 164, 144, 52, PLAIN, f"rank {rank}", "your program")
        d.arrow(x + 72, 217, x + 72, 243, both=True)
    d.box(24, 244, 712, 30, GREEN)
    d.text(380, 264, "one group: the same calls, and the same errors that name the rank", 12)
    d.text(380, 304, "the engine tells who has died: report_death", 12, GREY)
    d.text(380, 321, "the group tells that it has failed: on_failure", 12, GREY)
    return d


def distributions() -> Drawing:
    """The distributions: each stands on those that it requires."""
    d = Drawing(924, 352, "The distributions: each stands on those that it requires")
    for number, name in enumerate(("torch", "ray", "dask")):
        d.labelled(152 + 68 * number, 24, 62, 44, BLUE, name)
    d.labelled(484, 24, 121, 44, BLUE, "tools", "needs watch too")
    d.labelled(615, 24, 121, 44, BLUE, "testing", "needs watch too")
    d.labelled(24, 76, 110, 60, GREEN, "mpi", "over mpi4py")
    d.box(144, 76, 330, 60, GREEN)
    d.labelled(152, 84, 198, 44, PLAIN, "gloo", "one host or many")
    d.labelled(358, 84, 108, 44, PLAIN, "nccl", "GPUs")
    d.labelled(484, 76, 252, 60, AMBER, "launch", "rankwise run, spawn")
    d.labelled(24, 144, 286, 48, AMBER, "watch", "who lives, who is waited for")
    d.labelled(320, 144, 416, 48, AMBER, "stores", "TCPStore, FileStore, env://, tcp://, file://")
    d.labelled(24, 200, 712, 44, AMBER, "network", "addresses, doors, the job secret, what launchers say")
    d.labelled(746, 144, 72, 100, BLUE, "elastic")
    d.labelled(828, 144, 72, 100, BLUE, "arrays")
    d.labelled(24, 252, 212, 60, PLAIN, "native", "compiled parts of gloo", "and of the core, if installed")
    d.labelled(246, 252, 654, 60, ROSE, "rankwise, the core", "calls, groups, the contract; needs NumPy and pluggy")
    d.text(462, 336, "no import and no requirement goes upwards", 12, GREY)
    return d


def job() -> Drawing:
    """Who talks to whom in a running job: control by the store, data between the ranks."""
    d = Drawing(760, 330, "Who talks to whom in a job: control by the store, data between the ranks")
    d.labelled(270, 24, 220, 56, GREEN, "store", "the launcher or rank 0 serves it")
    for host in range(2):
        x = 24 + 376 * host
        d.box(x, 120, 336, 176, "#f1f5f9", "5 4")
        d.text(x + 168, 316, f"host {host}", 12, GREY)
        for local in range(2):
            left = x + 16 + 156 * local
            d.labelled(left, 134, 148, 30, AMBER, "watcher")
            d.labelled(left, 168, 148, 46, BLUE, f"rank {2 * host + local}", "calls, works, recorder")
            d.arrow(left + 74, 133, 300 + 50 * (2 * host + local), 81, both=True, colour=LINE)
            d.arrow(left + 74, 215, left + 74, 247, both=True)
        d.box(x + 16, 248, 304, 34, GREEN)
        d.text(x + 168, 270, "one host: the board, rings, peers' memory", 12)
    d.arrow(333, 190, 427, 190, both=True)
    d.text(380, 232, "arrays: TCP", 11, GREY)
    d.text(118, 60, "to begin: three arrivals", 12, GREY)
    d.text(642, 60, "then: heartbeats, verdicts", 12, GREY)
    return d


def board() -> Drawing:
    """Three ranks at the board: places for two turns each."""
    d = Drawing(760, 250, "The board: each rank has two places for its turn, and two areas for data")
    for rank in range(3):
        y = 46 + 58 * rank
        d.labelled(24, y, 110, 50, BLUE, f"rank {rank}")
        d.arrow(135, y + 25, 187, y + 25)
        for side, turn in enumerate(("turn 6", "turn 7") if rank < 2 else ("turn 6", "turn 5")):
            x, fill = 188 + 280 * side, AMBER if turn == "turn 7" else GREEN
            for number, (value, ground) in enumerate(((turn, fill), ("record", PLAIN), ("data", PLAIN))):
                d.box(x + 88 * number, y, 84, 50, ground)
                d.text(x + 88 * number + 42, y + 30, value, 12)
    d.text(318, 32, "even turns", 12, GREY)
    d.text(598, 32, "odd turns", 12, GREY)
    d.text(380, 234, "ranks 0 and 1 have stored turn 7, and wait until rank 2 has stored it too", 12, GREY)
    return d


#: Each curve: its name, its colour (fit for the colour-blind), and its column in the table.
CURVES = (
    ("rankwise-native", "#0072b2", 0),
    ("rankwise in Python", "#56b4e9", 1),
    ("torch gloo", "#d55e00", 4),
    ("Open MPI", "#009e73", 2),
)


def figures() -> list[tuple[int, list[float]]]:
    """Return the sizes of all_reduce on two ranks, with the microseconds of each column."""
    table = (HERE.parent / "native.md").read_text().partition("| 2 ranks | bytes |")[2].partition("\n\n")[0]
    rows = [line.split("|")[2:-1] for line in table.splitlines() if line.startswith("| all_reduce |")]
    return [(int(nbytes), [float(cell.split(",")[0]) for cell in cells]) for nbytes, *cells in rows]


class Chart(Drawing):
    """Curves over the size of an array, whose axis is logarithmic."""

    left, top, wide, high = 110, 80, 610, 300

    def __init__(self, title: str, sizes: list[tuple[int, str]]) -> None:
        super().__init__(760, 450, title)
        self.names: list[str] = []  # above all curves
        self.first, self.last = log10(sizes[0][0]), log10(sizes[-1][0])
        self.text(380, 44, title, 24, INK, 'font-weight="600"')
        for nbytes, words in sizes:
            self.rule(self.x(nbytes), self.top, self.x(nbytes), self.top + self.high)
            self.text(round(self.x(nbytes), 1), self.top + self.high + 32, words, 20, INK)

    def x(self, nbytes: int) -> float:
        return self.left + self.wide * (log10(nbytes) - self.first) / (self.last - self.first)

    def y(self, part: float) -> float:
        return self.top + self.high * (1 - part)

    def rule(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#e5e7eb"/>')

    def level(self, part: float, words: str) -> None:
        """Draw a horizontal line with what it stands for."""
        self.rule(self.left, self.y(part), self.left + self.wide, self.y(part))
        self.parts.append(
            f'<text x="{self.left - 12}" y="{self.y(part) + 7:.1f}" font-size="20" fill="{INK}" '
            f'text-anchor="end">{escape(words)}</text>'
        )

    def curve(self, points: list[tuple[int, float]], colour: str) -> None:
        """Draw a curve through points within the axes."""
        if not all(0 <= part <= 1 for _, part in points):
            raise ValueError(f"{self.title}: a point lies outside of its axes")
        line = " ".join(f"{self.x(nbytes):.1f},{self.y(part):.1f}" for nbytes, part in points)
        self.parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="4"/>')
        for nbytes, part in points:
            self.parts.append(f'<circle cx="{self.x(nbytes):.1f}" cy="{self.y(part):.1f}" r="5" fill="{colour}"/>')

    def name(self, nbytes: int, part: float, words: str, colour: str, anchor: str = "start", drop: int = -14) -> None:
        """Name a curve, legibly where another passes below the words."""
        self.names.append(
            f'<text x="{self.x(nbytes):.1f}" y="{self.y(part) + drop:.1f}" font-size="22" font-weight="600" '
            f'fill="{colour}" stroke="{GROUND}" stroke-width="8" stroke-linejoin="round" paint-order="stroke" '
            f'text-anchor="{anchor}">{escape(words)}</text>'
        )

    def svg(self) -> str:
        """Return the picture, with the names above all curves."""
        self.parts, self.names = [*self.parts, *self.names], []
        return super().svg()


def latency() -> Drawing:
    """The time of a small all_reduce over its size."""
    d = Chart("all_reduce, two ranks: time", [(8, "8 B"), (1 << 10, "1 KiB"), (16 << 10, "16 KiB"), (1 << 20, "1 MiB")])
    for decade, words in enumerate(("0.1 us", "1 us", "10 us", "100 us", "1 ms", "10 ms")):
        d.level(decade / 5, words)
    rows = [row for row in figures() if row[0] <= 1 << 20]
    for (words, colour, column), at, drop in zip(CURVES, (2, 0, 0, 0), (34, -14, 30, -18), strict=True):
        points = [(nbytes, log10(took_us[column] / 0.1) / 5) for nbytes, took_us in rows]
        d.curve(points, colour)
        d.name(*points[at], words, colour, drop=drop)
    return d


def bandwidth() -> Drawing:
    """The bytes a second of a large all_reduce over its size."""
    sizes = [(16 << 10, "16 KiB"), (1 << 20, "1 MiB"), (4 << 20, "4 MiB"), (16 << 20, "16 MiB"), (64 << 20, "64 MiB")]
    d = Chart("all_reduce, two ranks: bandwidth", sizes)
    for gigabytes in range(0, 13, 3):
        d.level(gigabytes / 12, f"{gigabytes} GB/s")
    rows = [row for row in figures() if row[0] >= 16 << 10]
    places = (("end", -14), ("start", 34), ("end", -14), ("start", 42))
    for (words, colour, column), place in zip(CURVES, places, strict=True):
        points = [(nbytes, nbytes / took_us[column] / 12_000) for nbytes, took_us in rows]
        d.curve(points, colour)
        d.name(*next(point for point in points if point[0] == 1 << 20), words, colour, *place)
    return d


DRAWINGS = (call, groups, lanes, collectives, machines, engines, store, distributions, job, board, latency, bandwidth)


def main() -> int:
    """Write the diagrams, or tell which are stale."""
    small = {f"moves/{name}.svg": drawing.svg() for name, drawing in moves().items()}
    drawn = {**{f"{draw.__name__}.svg": draw().svg() for draw in DRAWINGS}, **small, **front()}
    paths = {HERE / name: text for name, text in drawn.items()}
    stale = {path: text for path, text in paths.items() if not path.exists() or path.read_text() != text}
    if "--check" in sys.argv:
        print("\n".join(f"{path.name} is stale: run docs/images/draw.py" for path in stale))
        return bool(stale)
    for path, text in stale.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
