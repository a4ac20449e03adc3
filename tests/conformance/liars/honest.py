"""What planted bugs are planted into: the backend `local`, with a table that it keeps."""

from dataclasses import replace
from functools import reduce

import numpy as np

from rankwise import BackendSpec, ReduceOp
from rankwise.backends import IN_THREADS, Capabilities
from rankwise.collective import derived
from rankwise_local import LocalCommunicator
from rankwise_local.communicator import CAPABILITIES


def spec(name, communicator):
    """Declare a communicator as a backend that can do all that `local` can."""
    return BackendSpec(name, 1, Capabilities(name, CAPABILITIES.devices), communicator, launch=IN_THREADS, attends=True)


class OwnReductions(LocalCommunicator):
    """A communicator whose `fold(op, arrays)` may reduce some arrays in a way of its own, or return None."""

    def fold(self, op, arrays):
        raise NotImplementedError

    def algorithm(self, call):
        array, op = call.array, call.reduce_op
        if call.op != "all_reduce" or self.fold(op, [array, array]) is None:
            return super().algorithm(call)

        def reduce(deadline, counts):
            parts = [np.empty_like(array) for _ in range(self.size)]
            derived.all_gather(self, parts, array, deadline)
            array[...] = self.fold(op, parts)

        return reduce


class Rewording(LocalCommunicator):
    """A communicator that may multiply by another factor than it is given."""

    def factor(self, given, dtype):
        raise NotImplementedError

    def algorithm(self, call):
        op = call.reduce_op
        if op is not None and op.name == "PREMUL_SUM":
            call = replace(call, reduce_op=ReduceOp.PREMUL_SUM(self.factor(op.factor, call.array.dtype)))
        return super().algorithm(call)


def folded(ufunc, arrays):
    """Return what arrays come to, with no word about overflows."""
    with np.errstate(all="ignore"):
        return reduce(ufunc, arrays)


def planted(cls):
    """Return what declares a backend with the class's bug, under its name; the docstring says what is wrong."""

    def declare():
        return spec(cls.__name__, cls)

    declare.__doc__ = cls.__doc__
    return declare


class Meddling(LocalCommunicator):
    """A communicator that may do something to the buffers of a collective before or after it has run."""

    def before(self, call):
        """Meddle with what a rank gives."""

    def after(self, call):
        """Meddle with what a rank got."""

    def algorithm(self, call):
        run = super().algorithm(call)

        def meddled(deadline, counts):
            self.before(call)
            run(deadline, counts)
            self.after(call)

        return meddled
