"""Run all of torch's own tests on its gloo and on rankwise, and say where the two differ.

    python compare_own.py SIZE...

Every test that passes on gloo must pass on rankwise, but for those that `torchs_own.json` lists with a reason.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

_PROGRAM = Path(__file__).with_name("torchs_own.py")


def main(*sizes):
    listed = json.loads(_PROGRAM.with_suffix(".json").read_text(encoding="utf-8"))["tests"]
    failed = 0
    for size in sizes:
        theirs, ours = _run("theirs", size), _run("ours", size)
        passing = [name for name, how in theirs.items() if how == "passed"]
        odd = [name for name in passing if ours.get(name) != "passed" and name not in listed]
        also = [name for name, how in ours.items() if how == "passed" and name not in passing]
        print(f"{size} ranks: gloo passes {len(passing)} of {len(theirs)}, rankwise all but {len(odd)} and the listed")
        for name in (name for name in passing if name in listed):
            print(f"  listed: {name}: {listed[name]}" + (" (it passes)" if ours.get(name) == "passed" else ""))
        print(f"  passes on rankwise alone: {', '.join(also) or 'nothing'}")
        for name in odd:
            print(f"FAILED {name}\n{ours.get(name)}")
        failed += len(odd)
    return failed > 0


def _run(whose, size):
    with tempfile.NamedTemporaryFile() as results:
        # What it prints besides is of torch's logging; why tests have failed is in the results.
        subprocess.run([sys.executable, _PROGRAM, whose, size, results.name], check=True, stderr=subprocess.DEVNULL)
        return json.load(results)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
