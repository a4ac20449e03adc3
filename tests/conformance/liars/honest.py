"""What planted bugs are planted into: the backend `local`, with a table that it keeps."""

import numpy as np

from rankwise import BackendSpec
from rankwise.backends import Capabilities, Fingerprint
from rankwise.collective import derived
from rankwise.testing.local import CAPABILITIES, IN_THREADS, LocalCommunicator


def spec(name, communicator):
    """Declare a communicator as a backend that can do all that `local` can."""
    return BackendSpec(name, 1, Capabilities(name, CAPABILITIES.devices), communicator, launch=IN_THREADS)


class OwnReductions(LocalCommunicator):
    """A communicator whose `fold(op, arrays)` may reduce some arrays in a way of its own, or return None."""

    def fold(self, op, arrays):
        raise NotImplementedError

    def all_reduce(self, array, op, timeout_s, async_op=False):
        if self.fold(op, [array, array]) is None:
            return super().all_reduce(array, op, timeout_s, async_op)

        def body(deadline, counts):
            parts = [np.empty_like(array) for _ in range(self.size)]
            derived.all_gather(self, parts, array, deadline)
            array[...] = self.fold(op, parts)

        return self._collective(Fingerprint.of("all_reduce", array, op), body, timeout_s, async_op)
