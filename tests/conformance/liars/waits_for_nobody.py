"""What was sent is read from the sender's memory even after it has destroyed the group, and changed its array."""

from honest import spec

from rankwise.testing.local import LocalCommunicator


class Communicator(LocalCommunicator):
    def close(self):
        for box in self._boxes:
            box.keep = lambda src: None
        super().close()


def rankwise_backend():
    return spec("waits_for_nobody", Communicator)
