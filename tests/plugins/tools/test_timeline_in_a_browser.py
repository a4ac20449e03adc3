"""The page of a timeline in Chromium: light and dark, on a narrow and on a wide screen, from afar and from near."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from rankwise_tools.recordings.records import parse
from rankwise_tools.timelines.page import page
from rankwise_watch.dump import FORMAT

LOOK = runpy.run_path(str(Path(__file__).parents[3] / "docs/look.py"))
TIMEOUT_S = 60
MS = 1_000_000
STEPS = 2000
STEP = 25 * MS
#: Looks at the page of the timeline in a frame, and writes down what it sees.
LOOKER = """<!DOCTYPE html><body style="margin:0"><pre id="found"></pre>
<iframe id="frame" style="border:0" width="WIDTH" height="700" src="PAGE"></iframe><script>
frame.onload = () => setTimeout(() => {
  const inside = frame.contentDocument, canvas = inside.getElementById("view");
  const scale = canvas.width / canvas.clientWidth;
  const at = (x, y) => [...canvas.getContext("2d").getImageData(x * scale, y * scale, 1, 1).data];
  const rows = [...inside.querySelectorAll("#summary tr")].map((row) => [...row.cells].map((cell) => cell.textContent));
  const along = (ms) => 150 + ms / 22 * (canvas.clientWidth - 150);
  const message = [5, 15, 21.7].map((ms) => at(along(ms), 62)), around = [...Array(20).keys()];
  const arrow = around.map((x) => at(along(21) + x - 10, 82));
  const middle = canvas.clientWidth * 0.7, drawn = [0, 1, 2, 3].map((row) => at(middle, 26 + 11 + 30 * row));
  document.getElementById("found").textContent = JSON.stringify({ rows, drawn, message, arrow, wide: canvas.clientWidth,
    dark: inside.defaultView.matchMedia("(prefers-color-scheme: dark)").matches,
    out: inside.documentElement.scrollWidth - WIDTH, late: inside.getElementById("late").textContent });
}, 300);
</script></body>"""


def record(rank: int) -> dict[str, Any]:
    """Return what a rank's file holds where rank 1 comes four milliseconds late to each of many barriers."""
    late = 4 * MS if rank == 1 else rank * 1000
    entry = {"group": "default", "op": "barrier", "nbytes": 0, "dtype": None, "file": "", "line": 0, "function": ""}
    entries = [
        {**entry, "number": n, "thread": 1, "began_ns": 5 * n * MS + late, "ended_ns": (5 * n + 4) * MS + MS // 2}
        for n in range(STEPS)
    ]
    group = {"description": "default", "ranks": [0, 1, 2], "failure": "", "begun": STEPS - 1, "finished": STEPS - 1}
    return {
        **FRAME,
        "rank": rank,
        "groups": {"default": group},
        "entries": [{**each, "state": "done"} for each in entries],
    }


FRAME = {
    "rankwise_trace": FORMAT,
    "version": "0.1.0",
    "boot": "first",
    "reason": "end",
    "host": "node",
    "pid": 7,
    "world_size": 3,
    "written_ns": 10**13,
    "clock_offset_ns": 0,
    "threads": [],
}


def late_sender(rank: int) -> dict[str, Any]:
    """Return what a rank's file holds where rank 0 waits for ten of the twelve milliseconds that each message takes."""
    entry = {"group": "default", "nbytes": 8, "dtype": None, "file": "", "line": 0, "function": "", "tag": 0}
    recv = {**entry, "op": "irecv", "peer": 1, "thread": 0}
    send = {**entry, "op": "isend", "peer": 0, "thread": 0}
    entries = [
        {**recv, "number": n, "began_ns": n * STEP, "asked_ns": n * STEP + 10 * MS, "ended_ns": n * STEP + 22 * MS}
        if rank == 0
        else {**send, "number": n, "began_ns": n * STEP + 20 * MS, "ended_ns": n * STEP + 21 * MS}
        for n in range(10)
    ]
    told = {**record(rank), "entries": [{**each, "state": "done"} for each in entries], "world_size": 2}
    return {**told, "groups": {"default": {**told["groups"]["default"], "ranks": [0, 1], "begun": -1, "finished": -1}}}


def seen(folder: Path, width: int, dark: bool, part: str = "", ranks: Any = None) -> dict[str, Any]:
    """Return what the browser sees of the page."""
    ranks = ranks or [record(rank) for rank in range(3)]
    browser = next((path for name in LOOK["BROWSERS"] if (path := shutil.which(name))), None)
    if browser is None:
        pytest.skip("there is no browser here (Chromium)")
    (folder / "trace.html").write_text(page({told["rank"]: parse(told) for told in ranks}))
    looker = LOOKER.replace("WIDTH", str(width)).replace("PAGE", f"trace.html{part}")
    (folder / "look.html").write_text(looker)
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    command = [browser, *LOOK["PLAIN"], scheme, f"--user-data-dir={folder}/profile", "--virtual-time-budget=20000"]
    url = (folder / "look.html").as_uri()
    done = subprocess.run([*command, "--dump-dom", url], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    told = re.search(r'<pre id="found">(.+?)</pre>', done.stdout, re.DOTALL)
    assert told, done.stderr[-2000:]
    return json.loads(unescape(told[1]))  # type: ignore[no-any-return]


def strength(pixel: list[int], dark: bool) -> int:
    """Return how far a pixel is from the page's ground."""
    ground = 0x18 if dark else 0xFF
    return max(abs(value - ground) for value in pixel[:3])


@pytest.mark.parametrize("width", [375, 1280])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_says_who_was_waited_for_and_waiting_is_pale_from_afar(tmp_path, width, dark):
    found = seen(tmp_path, width, dark)
    assert found["dark"] is dark
    assert found["out"] <= 0, "it is wider than the screen"
    assert found["late"].startswith(f"rank 1 was waited for: it held up {STEPS} of {STEPS} collectives")
    assert found["rows"][0] == ["rank", "came last", "waited for", "waiting"]
    assert found["rows"][1][:2] == ["rank 1", str(STEPS)]
    who, first, late, third = (strength(pixel, dark) for pixel in found["drawn"])
    assert who > 60, "nobody is drawn as waited for"
    assert max(first, third) < 0.6 * late, "waiting is not paler than moving"


def test_it_is_drawn_so_from_near_too(tmp_path):
    who, first, _, third = (strength(pixel, False) for pixel in seen(tmp_path, 1280, False, "#from=99&to=105")["drawn"])
    assert who > 60
    assert abs(first - third) < 60


def test_a_message_is_thin_while_nobody_waits_pale_while_one_does_and_has_an_arrow(tmp_path):
    """The first of the messages fills the view: begun, asked for after 10 ms, sent after 20 and there after 22."""
    ranks = [late_sender(rank) for rank in range(2)]
    found = seen(tmp_path, 1280, False, "#from=0&to=22", ranks)
    assert found["late"].startswith("rank 1 was waited for: it held up 10 of 10 messages")
    assert found["rows"][1] == ["rank 1", "10", "100.0 ms", "0"]
    assert found["rows"][2] == ["rank 0", "0", "0", "100.0 ms"]
    thin, pale, moving = (strength(pixel, False) for pixel in found["message"])
    assert thin < 0.5 * pale < 0.3 * moving
    assert max(strength(pixel, False) for pixel in found["arrow"]) > 60, "there is no arrow"
