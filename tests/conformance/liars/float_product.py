"""PRODUCT of int64 goes through float64, and loses what does not fit into 53 bits."""

from functools import reduce

import numpy as np
from honest import OwnReductions, spec


class Communicator(OwnReductions):
    def fold(self, op, arrays):
        if op.name != "PRODUCT" or arrays[0].dtype != np.int64:
            return None
        with np.errstate(all="ignore"):
            return reduce(np.multiply, [array.astype(np.float64) for array in arrays]).astype(np.int64)


def rankwise_backend():
    return spec("float_product", Communicator)
