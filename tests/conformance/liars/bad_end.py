"""The last element of a broadcast of more than 4 MiB is wrong."""

from honest import spec

from rankwise.testing.local import LocalCommunicator


class Communicator(LocalCommunicator):
    def broadcast(self, array, root, timeout_s, async_op=False):
        work = super().broadcast(array, root, timeout_s, async_op)
        if array.nbytes > 4 << 20 and self.rank != root and not async_op:
            array.reshape(-1)[-1:] = array.reshape(-1)[:1]
        return work


def rankwise_backend():
    return spec("bad_end", Communicator)
