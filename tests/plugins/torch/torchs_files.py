"""Run files of torch's own tests, of which its wheel has none, on torch's gloo and on rankwise in its place.

    python torchs_files.py SOURCES [FILE...]

SOURCES is a checkout of torch's sources, of any version: a test of what this torch lacks fails on both. Every test
that passes on gloo must pass on rankwise, but for those that `torchs_files.json` lists with a reason. A FILE is named
as below test/distributed there; without, all are run that `torchs_files.json` lists.
"""

import fnmatch
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torchs_own

TABLE = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
#: What all tests of a file may take, and what each of its ranks.
FILE_S, TEST_S = 1500, 60


def main(sources, *names):
    """Run on both, and print for each file what differs."""
    folder = Path(sources).resolve() / "test" / "distributed"
    failed = 0
    for name in names or TABLE["files"]:
        theirs, ours = (_apart(whose, folder / name) for whose in ("theirs", "ours"))
        passing = [test for test, how in theirs.items() if how == "passed"]
        differ = {test: ours.get(test, "was not reached") for test in passing if ours.get(test) != "passed"}
        odd = {test: how for test, how in differ.items() if _reason(name, test) is None}
        print(f"{name}: gloo passes {len(passing)} of {len(theirs)}, rankwise {len(passing) - len(differ)}", flush=True)
        for test in differ.keys() - odd.keys():
            print(f"  listed: {test}: {_reason(name, test)}", flush=True)
        for test, how in odd.items():
            print(f"  FAILED {test}\n{how[-1500:]}", flush=True)
        failed += len(odd)
    return failed > 0


def _reason(name, test):
    """Return why a test of a file need not pass; None if it must."""
    return next((why for one, why in TABLE["tests"].items() if fnmatch.fnmatchcase(f"{name}:{test}", one)), None)


def _apart(whose, path):
    """Run a file in a process of its own; return how each test ended."""
    with tempfile.NamedTemporaryFile("w+", suffix=".json") as results:
        results.write("{}")
        results.flush()
        run = subprocess.Popen(
            [sys.executable, __file__, "--file", whose, path, results.name],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(TEST_S), "TORCH_CPP_LOG_LEVEL": "FATAL"},
            start_new_session=True,
        )
        try:
            run.wait(FILE_S)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, 9)
            run.wait()
        return json.load(results)


def one_file(whose, path, results):
    """Run the tests of a file, here."""
    import torch
    from torch.testing._internal import common_distributed

    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    if whose == "ours":
        torchs_own.take_over()
    fork = torch.multiprocessing.get_context("fork").Process
    common_distributed.MultiProcessTestCase._spawn_processes = lambda self: self._start_processes(fork)
    sys.path[:0] = [str(Path(path).parent), str(Path(path).parents[1])]
    spec = importlib.util.spec_from_file_location("torchs_file", path)
    module = sys.modules["torchs_file"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    outcome = torchs_own.Outcome(results, lambda test: ".".join(test.id().split(".")[-2:]))
    unittest.defaultTestLoader.loadTestsFromModule(module).run(outcome)
    outcome.write()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--file"]:
        one_file(*sys.argv[2:])
        os._exit(0)  # whatever threads tests have left
    sys.exit(main(*sys.argv[1:]))
