"""Messages of threads that send at the same time mix: they are put together in one buffer, without a lock."""

import time

import numpy as np
from honest import spec

from rankwise_local import LocalCommunicator


class Communicator(LocalCommunicator):
    def __init__(self, context):
        super().__init__(context)
        self.staging = np.zeros(8 << 20, np.uint8)

    def isend(self, array, dst, tag):
        if tag >= 2**30 or not 1000 < array.nbytes <= self.staging.size:
            return super().isend(array, dst, tag)
        raw, half = array.reshape(-1).view(np.uint8), array.nbytes // 2
        self.staging[:half] = raw[:half]
        time.sleep(0.001)
        self.staging[half : raw.size] = raw[half:]
        return super().isend(self.staging[: raw.size].copy().view(array.dtype), dst, tag)


def rankwise_backend():
    return spec("interleaves", Communicator)
