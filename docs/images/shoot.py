"""Take the picture of a timeline in docs/operate.md, from a real job of eight ranks: python docs/images/shoot.py

Rank 5 is made slow. The page is opened in Chromium, from the disk, with the pointer at one collective.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TIMEOUT_S = 120
JOB = """\
import time
import numpy as np
import rankwise as dist

dist.init_process_group("gloo")
for step in range(40):
    time.sleep(0.002 + 0.004 * (dist.get_rank() == 5))
    dist.all_reduce(np.ones(200_000, np.float32))
    if step % 8 == 0:
        dist.broadcast(np.ones(50_000), src=0)
dist.destroy_process_group()
"""


def main() -> int:
    """Run the job, draw its timeline, and take the picture."""
    look = runpy.run_path(str(HERE.parent / "look.py"))
    browser = next((path for name in look["BROWSERS"] if (path := shutil.which(name))), None)
    if browser is None:
        print("no picture was taken: there is no browser here (Chromium)")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "job.py").write_text(JOB)
        rankwise = [sys.executable, "-m", "rankwise"]
        records = {"RANKWISE_TRACE_DIR": str(Path(folder, "records"))}
        command(folder, *rankwise, "run", "-n", "8", "job.py", **records)
        command(folder, *rankwise, "trace", "records", "-o", "trace.html")
        taken = ["--window-size=1280,460", f"--user-data-dir={folder}/profile", f"--screenshot={HERE / 'timeline.png'}"]
        page = f"{Path(folder, 'trace.html').as_uri()}#from=100&to=180&at=600,150"
        command(folder, browser, *look["PLAIN"], *taken, page)
    return 0


def command(folder: str, *words: str, **more: str) -> None:
    """Run a command there."""
    subprocess.run(words, cwd=folder, env={**os.environ, **more}, check=True, timeout=TIMEOUT_S, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
