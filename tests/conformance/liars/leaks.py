"""Each group leaves 1 MiB behind on each rank."""

from honest import spec

from rankwise_local import LocalCommunicator

KEPT = []


class Communicator(LocalCommunicator):
    def __init__(self, context):
        super().__init__(context)
        KEPT.append(b"x" * (1 << 20))


def rankwise_backend():
    return spec("leaks", Communicator)
