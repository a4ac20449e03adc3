"""Draw what the examples of elastic jobs have printed, as docs/captured holds it: loss and ranks over time.

With `--run NAME`, run an example first and write what it prints there, for `elastic_ddp` in the environment of torch's
tests; with --check, only tell whether the pictures are stale.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from itertools import pairwise
from math import log10
from pathlib import Path

from draw import GREY, LINE, ROSE, Drawing

HERE = Path(__file__).parent
CAPTURED = HERE.parent / "captured"
#: What each example is run by; its picture and what it has printed are called as it is.
COMMANDS = {
    "elastic": "python examples/elastic/shoot.py",
    "elastic_ddp": "rankwise run -n 4 --elastic --max-restarts 3 examples/elastic_ddp/train.py",
}
TIMEOUT_S = 120
#: Where the axes are, and the colours of the curves, fit for the colour-blind.
LEFT, WIDE, LOSS_TOP, LOSS_HIGH, RANKS_TOP, RANKS_HIGH = 84, 640, 56, 150, 246, 84
BOTTOM = RANKS_TOP + RANKS_HIGH
LOSS, RANKS, SHOT = "#0072b2", "#009e73", "#d55e00"
LEAST, MOST = 0.01, 0.3

Event = tuple[float, str, int, str]


def events(text: str) -> list[Event]:
    """Return what was printed: when, of what kind, its number, and the rest."""
    found = re.findall(r"^ *([\d.]+) s  (?:\[0\]: )?(step|epoch|shot):? (\d+)(.*)$", text, re.MULTILINE)
    return [(float(time_s), kind, int(number), rest) for time_s, kind, number, rest in found]


def drawn(text: str) -> Drawing:
    """Return the picture of what was printed."""
    told = events(text)
    last_s = told[-1][0]

    def x(time_s: float) -> float:
        return round(LEFT + WIDE * time_s / last_s, 1)

    def mark(time_s: float, words: str, colour: str) -> None:
        d.text(x(time_s), LOSS_TOP - 12, words, 13, colour, 'font-weight="600"')

    d = Drawing(760, 384, "Loss and number of ranks over time, while ranks are shot and come back")
    begun = [(time_s, int(rest.split()[1])) for time_s, kind, _, rest in told if kind == "epoch"]
    for time_s, count in [(time_s, number) for time_s, kind, number, _ in told if kind == "shot"]:
        until_s = next(at for at, _ in begun if at > time_s)
        rectangle(d, x(time_s), LOSS_TOP, x(until_s) - x(time_s), BOTTOM - LOSS_TOP, ROSE)
        mark(time_s, f"{count} shot", SHOT)
    for (_, before), (time_s, ranks) in pairwise(begun):
        if ranks > before:
            line(d, [(x(time_s), LOSS_TOP), (x(time_s), BOTTOM)], RANKS, 1.2, "4 3")
            mark(time_s, f"{ranks - before} joined", RANKS)
    axes(d)
    for second in range(0, int(last_s) + 1, 1 + int(last_s) // 16):
        d.text(x(second), BOTTOM + 22, f"{second} s", 12, GREY)
    line(d, [(x(at), height(float(rest.split()[-1]))) for at, kind, _, rest in told if kind == "step"], LOSS, 3)
    epochs = pairwise([*begun, (last_s, 0)])
    line(d, [(x(at), level(ranks)) for (since_s, ranks), (end_s, _) in epochs for at in (since_s, end_s)], RANKS, 3)
    return d


def height(loss: float) -> float:
    """Return where a loss is, on an axis that is logarithmic."""
    return LOSS_TOP + LOSS_HIGH * (1 - log10(loss / LEAST) / log10(MOST / LEAST))


def level(ranks: int) -> float:
    """Return where a number of ranks is."""
    return RANKS_TOP + RANKS_HIGH * (1 - ranks / 4.5)


def axes(d: Drawing) -> None:
    """Draw the two vertical axes with their names."""
    for loss in (0.2, 0.1, 0.05, 0.02, 0.01):
        line(d, [(LEFT, height(loss)), (LEFT + WIDE, height(loss))], LINE, 0.4)
        d.text(LEFT - 24, round(height(loss) + 4, 1), f"{loss:g}", 12, GREY)
    for ranks in range(5):
        line(d, [(LEFT, level(ranks)), (LEFT + WIDE, level(ranks))], LINE, 0.4)
        d.text(LEFT - 16, round(level(ranks) + 4, 1), str(ranks), 12, GREY)
    d.text(28, LOSS_TOP + LOSS_HIGH / 2, "loss", 14, LOSS, 'font-weight="600"')
    d.text(28, RANKS_TOP + RANKS_HIGH / 2, "ranks", 14, RANKS, 'font-weight="600"')


def rectangle(d: Drawing, x: float, y: float, w: float, h: float, fill: str) -> None:
    """Draw a place without an outline."""
    d.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{fill}"/>')


def line(d: Drawing, points: list[tuple[float, float]], colour: str, wide: float, dash: str = "") -> None:
    """Draw a line through points."""
    more = f' stroke-dasharray="{dash}"' if dash else ""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    d.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{wide:g}"{more}/>')


def run(name: str) -> str:
    """Run an example, and return what it prints below its command, with the seconds since its first line."""
    command, began = COMMANDS[name], 0.0
    words = command.split()[1:] if name == "elastic" else ["-m", *command.split()]
    lines = []
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=HERE.parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as job:
        threading.Timer(TIMEOUT_S, job.kill).start()
        assert job.stdout is not None
        for line in job.stdout:
            began = began or time.monotonic()
            lines.append(line if name == "elastic" else f"{time.monotonic() - began:5.2f} s  {line}")
    if job.returncode:
        raise SystemExit(f"{command} failed:\n{''.join(lines)}")
    return f"$ {command}\n{''.join(lines)}"


def shown(text: str) -> str:
    """Return what a launcher has printed of a death as the other example says it."""
    return re.sub(r"rankwise: rank \d failed: .*", "shot: 1 of 4 ranks", text)


def main() -> int:
    """Write the pictures, or tell whether they are stale."""
    if "--run" in sys.argv:
        name = sys.argv[sys.argv.index("--run") + 1]
        (CAPTURED / f"{name}.txt").write_text(run(name))
    stale = []
    for name in COMMANDS:
        picture = drawn(shown((CAPTURED / f"{name}.txt").read_text())).svg()
        path = HERE / f"{name}.svg"
        if not path.exists() or path.read_text() != picture:
            stale.append(path)
    if "--check" in sys.argv:
        print("".join(f"{path.name} is stale: run docs/images/elastic.py\n" for path in stale))
        return len(stale) > 0
    for path in stale:
        path.write_text(drawn(shown((CAPTURED / f"{path.stem}.txt").read_text())).svg())
    return 0


if __name__ == "__main__":
    sys.exit(main())
