"""A message of any dtype is received into any other."""

from honest import spec

from rankwise.backends import FutureWork, as_bytes
from rankwise_local import LocalCommunicator


class Communicator(LocalCommunicator):
    def isend(self, array, dst, tag):
        work = FutureWork()
        end = lambda error: work.succeed() if error is None else work.fail(error)  # noqa: E731
        self._boxes[dst].deliver(self.rank, tag, as_bytes(array), end)
        return work


def rankwise_backend():
    return spec("blind", Communicator)
