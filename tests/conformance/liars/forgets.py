"""A message is read from its old address, even if its array has moved or gone."""

import ctypes

import numpy as np
from honest import spec

from rankwise_local import LocalCommunicator


class Communicator(LocalCommunicator):
    def isend(self, array, dst, tag):
        if not array.nbytes:
            return super().isend(array, dst, tag)
        there = (ctypes.c_ubyte * array.nbytes).from_address(array.ctypes.data)
        return super().isend(np.frombuffer(there, array.dtype), dst, tag)


def rankwise_backend():
    return spec("forgets", Communicator)
