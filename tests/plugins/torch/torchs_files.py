"""Run files of torch's own tests, of which its wheel has none, on torch's gloo and on rankwise in its place.

    python torchs_files.py SOURCES [FILE...]

SOURCES is a checkout of torch's sources, of any version: a test of what this torch lacks fails on both. Every test
that passes on gloo must pass on rankwise, but for those that `torchs_files.json` lists with a reason. A FILE is named
as below test/distributed there, or several by a pattern; without, all are run that `torchs_files.json` lists.
"""

import contextlib
import fnmatch
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import on_the_cpu
import torchs_own

TABLE = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
#: What all tests of a file may take, and what each test.
FILE_S, TEST_S = 300, 60


def main(sources, *names):
    """Run on both, and print for each file what differs."""
    names = [name for pattern in names or TABLE["files"] for name in _meant(sources, pattern)]
    with tempfile.TemporaryDirectory() as folder:
        runs = [_start(whose, sources, folder, names) for whose in ("theirs", "ours")]
        for run in runs:
            run.wait()
        return (
            sum([_compare(name, *(_read(folder, whose, name) for whose in ("theirs", "ours"))) for name in names]) > 0
        )


def _meant(sources, pattern):
    """Return the names of the files that a pattern matches; other names stand for themselves, as files may move."""
    folder = Path(sources, "test", "distributed")
    if "*" not in pattern:
        return [pattern]
    return sorted(str(path.relative_to(folder)) for path in folder.glob(pattern))


def _start(whose, sources, folder, names):
    env = {**os.environ, "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(TEST_S), "TORCH_CPP_LOG_LEVEL": "FATAL"}
    command = [sys.executable, __file__, "--run", whose, sources, folder, *names]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)


def _place(folder, whose, name):
    return Path(folder, f"{whose} {name.replace('/', ' ')}.json")


def _read(folder, whose, name):
    place = _place(folder, whose, name)
    return json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}


def _compare(name, theirs, ours):
    """Print what differs in a file; return how many tests do that are not listed."""
    passing = [test for test, how in theirs.items() if how == "passed"]
    differ = {test: ours.get(test, "was not reached") for test in passing if ours.get(test) != "passed"}
    odd = {test: how for test, how in differ.items() if _reason(name, test) is None}
    print(f"{name}: gloo passes {len(passing)} of {len(theirs)}, rankwise {len(passing) - len(differ)}", flush=True)
    for test in differ.keys() - odd.keys():
        print(f"  listed: {test}: {_reason(name, test)}", flush=True)
    for test, how in odd.items():
        print(f"  FAILED {test}\n{how[-1500:]}", flush=True)
    return len(odd)


def _reason(name, test):
    """Return why a test of a file need not pass; None if it must."""
    return next((why for one, why in TABLE["tests"].items() if fnmatch.fnmatchcase(f"{name}:{test}", one)), None)


# ---------------------------------------------------------------------- what runs on one of them


def run_files(whose, sources, folder, *names):
    """Run each file in a process that is forked from this one, which has loaded everything and begun nothing."""
    import torch
    from torch.testing._internal import common_distributed

    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    if whose == "ours":
        torchs_own.take_over()
    fork = torch.multiprocessing.get_context("fork").Process
    common_distributed.MultiProcessTestCase._spawn_processes = lambda self: _start_ranks(self, fork)
    for name in names:
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            try:
                _run_file(_source(sources, name), _place(folder, whose, name))
            finally:
                os._exit(0)  # whatever threads tests have left
        _end(pid)


def _start_ranks(test, process):
    """Start the processes of a test; one of as many ranks as there are GPUs has none, and would pass."""
    if int(test.world_size) == 0:
        raise unittest.SkipTest("no process to start")
    test._start_processes(process)


def _source(sources, name):
    """Return where a file is; those of DTensor have moved since torch 2.6."""
    folder = Path(sources, "test", "distributed").resolve()
    return folder / (name if (folder / name).exists() else name.replace("_tensor/", "tensor/"))


def _end(pid):
    """Wait for a process, which is killed if it takes too long, with the ranks that it has left."""
    until = time.monotonic() + FILE_S
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return
        time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _run_file(path, results):
    sys.argv[:] = [str(path)]  # torch runs tests of the program alone
    sys.path[:0] = [str(path.parent), *(str(parent) for parent in path.parents if parent.name == "test")]
    outcome = torchs_own.Outcome(results, lambda test: ".".join(test.id().split(".")[-2:]))
    unittest.defaultTestLoader.loadTestsFromModule(_load(path)).run(outcome)
    outcome.write()


def _load(path):
    if not any(fnmatch.fnmatchcase(str(path), f"*/test/distributed/{names}") for names in TABLE["on the CPU"]):
        return importlib.import_module(path.stem)
    on_the_cpu.pretend()
    return on_the_cpu.load(path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        sys.exit(run_files(*sys.argv[2:]))
    sys.exit(main(*sys.argv[1:]))
