"""Run torch's own tests of its process groups, as its wheel ships them, on torch's gloo or on rankwise in its place.

    python torchs_own.py theirs|ours SIZE RESULTS [TEST...]

Nothing of the tests is changed. rankwise answers to the name "gloo", so that what torch tests of gloo alone is tested
too. The ranks are forked from this process, which has loaded everything and begun nothing, rather than spawned.
RESULTS gets a JSON object: for each test "passed", "skipped" or the last lines of why it failed.
"""

import json
import os
import sys
import unittest


def main(whose, size, results, *names):
    os.environ.update(BACKEND="gloo", WORLD_SIZE=size)
    import torch
    from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    if whose == "ours":
        import rankwise_torch

        rankwise_torch.install(as_gloo=True)
    else:
        import rankwise_torch  # noqa: F401 - as much is loaded

    class TestGroups(TestDistBackend, DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    loader = unittest.defaultTestLoader
    tests = [name for name in loader.getTestCaseNames(TestGroups) if not names or name in names]
    outcome = _Outcome(results)
    for name in tests:
        TestGroups(name).run(outcome)
    outcome.write()
    return 0


class _Outcome(unittest.TestResult):
    """Notes how each test ended, and writes it down as it goes."""

    def __init__(self, path):
        super().__init__()
        self.path, self.of = path, {}

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
        print(f"{self.of[_name(test)].strip().splitlines()[-1][:100]:100} {_name(test)}", flush=True)
        self.write()

    def write(self):
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(self.of, file, indent=1)

    def _note(self, test, how):
        self.of[_name(test)] = how


def _name(test):
    return test.id().rpartition(".")[2]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
