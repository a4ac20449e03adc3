"""At most 1,000 messages and 4 MiB may be sent and not yet received: an isend beyond that waits."""

import threading

from honest import spec

from rankwise import DistTimeoutError
from rankwise_local import LocalCommunicator

MESSAGES, NBYTES = 1000, 4 << 20


class Communicator(LocalCommunicator):
    def __init__(self, context):
        super().__init__(context)
        self.sent, self.changed = {}, threading.Condition()

    def isend(self, array, dst, tag):
        if tag >= 2**30:
            return super().isend(array, dst, tag)
        with self.changed:
            on_its_way = self.sent.setdefault(dst, [])
            if not self.changed.wait_for(lambda: self._fits(on_its_way, array.nbytes), 2):
                raise DistTimeoutError(f"no room for {array.nbytes} bytes to rank {dst}")
            on_its_way.append(array.nbytes)
        work = super().isend(array, dst, tag)
        work._ending.then(lambda: self._received(dst, array.nbytes))
        return work

    def _fits(self, on_its_way, nbytes):
        return not on_its_way or (len(on_its_way) < MESSAGES and sum(on_its_way) + nbytes <= NBYTES)

    def _received(self, dst, nbytes):
        with self.changed:
            self.sent[dst].remove(nbytes)
            self.changed.notify_all()


def rankwise_backend():
    return spec("small_window", Communicator)
