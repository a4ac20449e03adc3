"""MIN of uint64 compares as if they were signed."""

from functools import reduce

import numpy as np
from honest import OwnReductions, spec


class Communicator(OwnReductions):
    def fold(self, op, arrays):
        if op.name != "MIN" or arrays[0].dtype != np.uint64:
            return None
        return reduce(np.minimum, [array.astype(np.int64) for array in arrays]).astype(np.uint64)


def rankwise_backend():
    return spec("signed_min", Communicator)
