"""Run torch's own tests of its process groups, as its wheel ships them, on torch's gloo or on rankwise in its place.

    python torchs_own.py theirs|ours SIZE RESULTS [TEST...]

Nothing of the tests is changed. rankwise answers to the name "gloo", so that what torch tests of gloo alone is tested
too. The ranks are forked from this process, which has loaded everything and begun nothing, rather than spawned.
RESULTS gets a JSON object: for each test "passed", "skipped" or the last lines of why it failed.
"""

import json
import os
import re
import subprocess
import sys
import unittest
from importlib import import_module
from pathlib import Path

#: Which tests cannot pass and why, and which words of ours stand for which of torch's.
EXCEPTIONS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def main(whose, size, results, *names):
    os.environ.update(BACKEND="gloo", WORLD_SIZE=size)
    import torch
    from torch.testing._internal.distributed import distributed_test

    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    if whose == "ours":
        _take_over(distributed_test)

    class TestGroups(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        def assertRaisesRegex(self, error, words, *args, **more):
            return super().assertRaisesRegex(error, _ours(words) if whose == "ours" else words, *args, **more)

    tests = [name for name in unittest.defaultTestLoader.getTestCaseNames(TestGroups) if not names or name in names]
    outcome = Outcome(results)
    for name in tests:
        TestGroups(name).run(outcome)
    outcome.write()


def _take_over(distributed_test):
    take_over()
    # Events that were begun in Python are never marked as asynchronous, as the events of these backends must be.
    distributed_test.PROFILING_SUPPORTED_BACKENDS.remove("gloo")
    distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.remove("gloo")


def take_over():
    """Have rankwise answer to the name "gloo", in this process and those that it forks."""
    import rankwise_torch

    rankwise_torch.install(as_gloo=True)
    _load_what_groups_need()


def _load_what_groups_need():
    """Import what the first group of a process does, so that not each of some hundred processes has to."""
    program = (
        "import sys, torch.distributed as dist, rankwise_torch\n"
        "dist.init_process_group('rankwise', store=dist.HashStore(), rank=0, world_size=1)\n"
        "print(*(name for name in sys.modules if name.startswith('rankwise')))"
    )
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=300)
    for name in found.stdout.split():
        import_module(name)


def _ours(words):
    """Return the words of ours that stand for some of torch's."""
    known = EXCEPTIONS["words"].items()
    return next((ours for theirs, ours in known if theirs == words or re.search(theirs, words)), words)


class Outcome(unittest.TestResult):
    """Notes how each test ended, and writes it down as it goes."""

    def __init__(self, path, name=lambda test: test.id().rpartition(".")[2]):
        super().__init__()
        self.path, self.of, self._name = path, {}, name

    def startTest(self, test):
        super().startTest(test)
        self._note(test, "passed")

    def addSkip(self, test, reason):
        self._note(test, "skipped")

    def addError(self, test, error):
        self._note(test, self._exc_info_to_string(error, test))

    def addFailure(self, test, error):
        self.addError(test, error)

    def stopTest(self, test):
        super().stopTest(test)
        print(f"{self.of[self._name(test)].strip().splitlines()[-1][:100]:100} {self._name(test)}", flush=True)
        self.write()

    def write(self):
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(self.of, file, indent=1)

    def _note(self, test, how):
        self.of[self._name(test)] = how


if __name__ == "__main__":
    main(*sys.argv[1:])
