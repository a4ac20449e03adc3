"""Write what the commands print into docs/captured; with --check, only tell which files are stale.

`top` writes docs/images/top.svg, what `rankwise top` shows of a job of eight ranks of which one is slow.

Text is what a pipe gets. The picture is what a terminal shows at the end, drawn by rich.

What a file shows was really printed, with two exceptions: the places of this checkout and of its Python are written as
~/rankwise, and the kernel's release without what a distribution has added to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path

from terminal import run_on_terminal

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/captured"
DEADLINE_S = 240

COLUMNS = 100
COMMANDS = {
    "demo.txt": "demo -n 4",
    "demo.svg": "demo -n 4",
    "demo-elastic.txt": "demo --elastic",
    "backends.txt": "backends",
    "doctor.txt": "doctor",
    "bench.txt": "bench -n 2 --ops all_reduce,broadcast --sizes 1KiB:16MiB:16",
    "explain.txt": "explain all_reduce --bytes 64MiB --ranks 16 --hosts 16",
}


def captured(name: str) -> str:
    """Run the command of a file, and return what the file should hold."""
    command = COMMANDS[name]
    code, shown = (on_a_terminal if name.endswith(".svg") else piped)(command)
    if code != 0:
        raise SystemExit(f"rankwise {command} ended with exit code {code}:\n{shown}")
    text = f"$ rankwise {command}\n{neutral(shown)}"
    return picture(text) if name.endswith(".svg") else text


def environment(**more: str) -> dict[str, str]:
    """Return the environment without what changes the commands' output."""
    changing = ("RANKWISE_", "FORCE_COLOR", "NO_COLOR")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(changing)}, **more}


def piped(command: str) -> tuple[int, str]:
    """Return the exit code of a command, and what it prints into a pipe."""
    done = subprocess.run(
        [sys.executable, "-m", "rankwise", *command.split()],
        env=environment(),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
    )
    return done.returncode, done.stdout


def on_a_terminal(command: str) -> tuple[int, str]:
    """Return the exit code of a command, and what a terminal shows when it has ended."""
    command_line = [sys.executable, "-m", "rankwise", *command.split()]
    code, shown = run_on_terminal(command_line, COLUMNS, ROOT, environment(TERM="xterm-256color"), DEADLINE_S)
    return code, final_screen(shown)


LATE = """\
import time
import numpy as np
import rankwise as dist

dist.init_process_group("gloo")
gradients, loss = np.ones(100_000, np.float32), np.zeros(1)
while True:
    time.sleep(0.016 if dist.get_rank() == 5 else 0.010)
    dist.all_reduce(gradients)
    dist.all_reduce(loss)
"""


def top() -> str:
    """Draw the last of some looks at a job that names the rank; on a busy machine all are late, and it takes some."""
    looks, seconds = 12, 1.0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(LATE)
        job = [sys.executable, "-m", "rankwise", "run", "-n", "8", "train.py"]
        with subprocess.Popen(job, cwd=folder, env=environment(), stderr=subprocess.DEVNULL) as process:
            try:
                time.sleep(5 * seconds)  # a job that has settled is what the picture is about
                look = [sys.executable, "-m", "rankwise", "top", str(process.pid), "--interval", str(seconds)]
                shown = pressed(look, b"q", looks * seconds, folder)
            finally:
                process.terminate()
    frames = [frame.partition("\x1b[?")[0] for frame in shown.split("\x1b[H") if "rank 5 on" in frame]
    if not frames:
        raise SystemExit("no look has named rank 5: is the machine busy?")
    return picture("$ rankwise top\n" + re.sub(r" +$", "", frames[-1], flags=re.MULTILINE).rstrip(), "top")


def pressed(command: list[str], key: bytes, after_s: float, folder: str) -> str:
    """Return what a command shows on a terminal until a key is pressed."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, COLUMNS, 0, 0))
    data, until = b"", time.monotonic() + after_s
    env = {name: value for name, value in environment(TERM="xterm-256color").items() if name != "COLUMNS"}
    with subprocess.Popen(command, cwd=folder, env=env, stdin=follower, stdout=follower, stderr=follower):
        os.close(follower)
        with contextlib.suppress(OSError):  # how the system tells that the last writer is gone
            while more := select.select([leader], [], [], max(0.0, until - time.monotonic()))[0] or [key]:
                if more == [key]:
                    os.write(leader, key)
                    until = time.monotonic() + DEADLINE_S
                else:
                    data += os.read(leader, 1 << 16)
        os.close(leader)
    return data.decode().replace("\r\n", "\n")


def final_screen(text: str) -> str:
    """Follow the only movements that a live display makes: to a line's beginning, up a line, and clearing one."""
    lines = [""]
    for piece in re.split(r"(\n|\r|\x1b\[1A|\x1b\[2K|\x1b\[\?25[lh])", text):
        if piece == "\n":
            lines.append("")
        elif piece == "\x1b[1A":
            lines.pop()
        elif piece == "\x1b[2K":
            lines[-1] = ""
        elif not piece.startswith(("\r", "\x1b[?25")):
            lines[-1] += piece
    return "\n".join(lines)


def picture(text: str, name: str = "demo") -> str:
    """Draw a terminal with this text, without fonts from elsewhere."""
    from rich.console import Console
    from rich.text import Text

    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere)
        console.print(Text.from_ansi(text))
    drawn = console.export_svg(title=f"rankwise {name}", unique_id=name)
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL).replace("Fira Code", "ui-monospace")


def neutral(text: str) -> str:
    """Write the places of this checkout as they are after a clone into the home folder."""
    text = text.replace(sys.prefix, "~/rankwise/.venv").replace(str(ROOT), "~/rankwise")
    return re.sub(r"( on Linux \d+(?:\.\d+)*)\S*,", r"\1,", text)


# ---------------------------------------------------------------------- what stays the same from run to run


def drawn_words(text: str) -> list[str]:
    """Return the words of a picture without figures."""
    found = re.findall(r"<text [^>]*>([^<]*)</text>", text)
    return words("\n".join(re.sub(r"█+", "█", piece.replace("&#160;", " ")) for piece in found))


def words(text: str) -> list[str]:
    """Return the lines without figures and units, and without the width of columns."""
    without = re.sub(r"\d+(?:[.,]\d+)*(?: [kMG]?B/s)?", "#", text)
    return [re.sub(r"[ -]+", " ", line) for line in without.splitlines()]


def sections(text: str) -> list[str]:
    """Return the headings, and what each finding is about; how good it is depends on the machine."""
    lines = [line for line in text.splitlines() if not re.match(r" +->|  .. {2}(this|only|there|driver|CuPy)", line)]
    return [re.sub(r"^  .. {2}([\w/.-]+).*", r"  \1", line) for line in lines]


def cells(text: str) -> list[str]:
    """Return the first two words of each line: the rows of the tables, and the notes."""
    return [" ".join(line.split()[:2]) for line in text.splitlines() if not line.startswith("  ")]


def in_any_order(text: str) -> list[str]:
    """Return what two processes write at once; as newcomers may come together, what is said of them counts once."""
    lines = words(text)
    newcomers = {line for line in lines if "a newcomer" in line}
    return sorted([*newcomers, *(line for line in lines if line not in newcomers)])


FORMS: dict[str, Callable[[str], list[str]]] = {
    "doctor.txt": sections,
    "backends.txt": cells,
    "explain.txt": str.splitlines,
    "demo.svg": drawn_words,
    "demo-elastic.txt": in_any_order,
}


def stale(name: str, text: str) -> str:
    """Return what differs between a file and what was printed now, or nothing."""
    path, form = FOLDER / name, FORMS.get(name, words)
    if not path.exists():
        return "it is not there"
    before, now = form(path.read_text(encoding="utf-8")), form(text)
    gone, new = ([line for line in a if line not in b] for a, b in ((before, now), (now, before)))
    return "" if before == now else f"only in the file: {gone}; only printed now: {new}"


def main() -> int:
    """Write the files that are asked for, or tell which are stale."""
    if sys.argv[1:] == ["top"]:
        (ROOT / "docs/images/top.svg").write_text(top(), encoding="utf-8")
        return 0
    names = [name for name in sys.argv[1:] if name != "--check"] or list(COMMANDS)
    check, found = "--check" in sys.argv, 0
    for name in names:
        text = captured(name)
        if not check:
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / name).write_text(text, encoding="utf-8")
        elif difference := stale(name, text):
            print(f"docs/captured/{name} is stale, run scripts/capture {name}: {difference}")
            found = 1
    return found


if __name__ == "__main__":
    sys.exit(main())
