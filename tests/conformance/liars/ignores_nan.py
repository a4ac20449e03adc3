"""MAX of floats ignores NaN."""

from functools import reduce

import numpy as np
from honest import OwnReductions, spec


class Communicator(OwnReductions):
    def fold(self, op, arrays):
        return reduce(np.fmax, arrays) if op.name == "MAX" and arrays[0].dtype.kind == "f" else None


def rankwise_backend():
    return spec("ignores_nan", Communicator)
