"""A backend whose table and contract it does not keep: the suite must catch every lie."""

import numpy as np

from rankwise import BackendSpec
from rankwise.backends import COLLECTIVES, COMPLETED, IN_THREADS, Capabilities, Deadline, Device, native
from rankwise.backends.cells import derived as made_of_messages
from rankwise.collective import derived
from rankwise.errors import DistBackendError
from rankwise_local import LocalCommunicator


class LiarCommunicator(LocalCommunicator):
    def run(self, call, timeout_s, async_op=False):
        if call.op == "broadcast" and call.array.dtype == np.float16:
            raise DistBackendError("float16 is declared, but I cannot send it")
        if call.op == "all_reduce":
            return self.all_reduce(call.array, call.reduce_op, timeout_s)
        return super().run(call, timeout_s, async_op)

    def isend(self, array, dst, tag):
        return super().isend(array, dst, self._without_small(tag))

    def irecv(self, array, src, tag):
        return super().irecv(array, src, self._without_small(tag))

    def all_reduce(self, array, op, timeout_s):
        """Compare no fingerprints, and sum in an order that depends on the rank."""
        parts = [np.empty_like(array) for _ in range(self.size)]
        derived.all_gather(self, parts, array, Deadline(timeout_s))
        total = op.accumulator(parts[self.rank])
        for step in range(1, self.size):
            op.combine(total, parts[(self.rank + step) % self.size].reshape(-1))
        op.finish(total, array, self.size)
        return COMPLETED

    @staticmethod
    def _without_small(tag):
        return tag if tag >= 2**30 else 0


def rankwise_backend():
    ops = {**native("send", "recv"), **made_of_messages(*COLLECTIVES)}
    del ops["scatter"]  # although it works
    features = {**native("tags", "abort"), **made_of_messages("async", "uneven", "sparse", "timeout", "mismatch")}
    table = Capabilities("liar", {"cpu": Device(ops, features)})
    return BackendSpec("liar", 1, table, LiarCommunicator, launch=IN_THREADS, attends=True)
