"""Bugs in corners: inputs that are written to, last bits, what works say of themselves, what is told of the backend."""

import numpy as np
from honest import Meddling, OwnReductions, folded, planted
from messages import OURS

from rankwise.backends import COMPLETED, FutureWork, Mailbox, as_bytes
from rankwise.errors import DistError
from rankwise_local import LocalCommunicator


def _first_as_the_last(array):
    if array.flags.writeable and array.size > 1:
        flat = array.reshape(-1)
        flat[:1] = flat[-1:]


@planted
class writes_into_what_is_gathered(Meddling):
    """An all_gather leaves this rank's input with its first element as the last."""

    def after(self, call):
        if call.op == "all_gather":
            _first_as_the_last(call.array)


@planted
class writes_into_what_is_scattered(Meddling):
    """A scatter leaves the root's last part with its first element as the last."""

    def after(self, call):
        if call.op == "scatter" and self.rank == call.root:
            _first_as_the_last(call.ins[-1])


@planted
class writes_into_what_is_exchanged(Meddling):
    """An all_to_all leaves the part for the next rank with its first element as the last."""

    def after(self, call):
        if call.op == "all_to_all":
            _first_as_the_last(call.ins[(self.rank + 1) % self.size])


@planted
class writes_into_what_is_sent(LocalCommunicator):
    """A message is sent from a copy, and the array gets its first element as the last."""

    def isend(self, array, dst, tag):
        if tag >= OURS or array.nbytes > 1_000:
            return super().isend(array, dst, tag)
        self._boxes[dst].deliver(self.rank, tag, bytes(as_bytes(array)), dtype=array.dtype)
        _first_as_the_last(array)
        return COMPLETED


@planted
class no_barrier(LocalCommunicator):
    """A barrier waits for nobody."""

    def run(self, call, timeout_s, async_op=False):
        return COMPLETED if call.op == "barrier" else super().run(call, timeout_s, async_op)


@planted
class rounded_sums(OwnReductions):
    """float64 is summed in float32."""

    def fold(self, op, arrays):
        if op.name != "SUM" or arrays[0].dtype != np.float64:
            return None
        return folded(np.add, [array.astype(np.float32) for array in arrays]).astype(np.float64)


@planted
class rounded_long_doubles(OwnReductions):
    """long double is summed in float64."""

    def fold(self, op, arrays):
        if op.name != "SUM" or arrays[0].dtype != np.longdouble:
            return None
        return folded(np.add, [array.astype(np.float64) for array in arrays]).astype(np.longdouble)


@planted
class rounded_complex(OwnReductions):
    """The product of complex128 goes through complex64."""

    def fold(self, op, arrays):
        if op.name != "PRODUCT" or arrays[0].dtype != np.complex128:
            return None
        return folded(np.multiply, [array.astype(np.complex64) for array in arrays]).astype(np.complex128)


@planted
class rounded_minimum(OwnReductions):
    """MIN of float64 goes through float32."""

    def fold(self, op, arrays):
        if op.name != "MIN" or arrays[0].dtype != np.float64:
            return None
        return folded(np.minimum, [array.astype(np.float32) for array in arrays]).astype(np.float64)


@planted
class infinities_that_vanish(OwnReductions):
    """Infinity and minus infinity add up to zero."""

    def fold(self, op, arrays):
        if op.name != "SUM" or arrays[0].dtype != np.float32:
            return None
        total = folded(np.add, arrays)
        opposed = np.isnan(total) & ~np.any([np.isnan(array) for array in arrays], axis=0)
        return np.where(opposed, np.float32(0), total)


@planted
class the_largest_by_size(OwnReductions):
    """MAX of complex numbers goes by their magnitude."""

    def fold(self, op, arrays):
        if op.name != "MAX" or arrays[0].dtype != np.complex64:
            return None
        return np.choose(np.argmax(np.abs(arrays), axis=0), arrays)


@planted
class uneven_ends(Meddling):
    """Where parts differ in size, a reduce_scatter loses the last element of each."""

    def after(self, call):
        if call.op == "reduce_scatter" and len({part.size for part in call.ins}) > 1:
            call.array.reshape(-1)[-1:] = 0


class _Clearing(Mailbox):
    def _meet(self, message, receive):
        if message.tag < OURS and len(message.payload) < len(receive.buffer):
            receive.buffer[len(message.payload) :] = bytes(len(receive.buffer) - len(message.payload))
        super()._meet(message, receive)


@planted
class clears_the_rest(LocalCommunicator):
    """A message that is shorter than its buffer clears the rest of it."""

    def __init__(self, context):
        super().__init__(context)
        self._boxes[self.rank].__class__ = _Clearing


class _Strict(Mailbox):
    def _meet(self, message, receive):
        if message.tag < OURS and receive.dtype == np.uint8 and message.dtype != np.uint8:
            receive.dtype = np.dtype("V77")  # which nothing is
        super()._meet(message, receive)


@planted
class bytes_of_no_other(LocalCommunicator):
    """A receive of bytes takes no message of another dtype."""

    def __init__(self, context):
        super().__init__(context)
        self._boxes[self.rank].__class__ = _Strict


@planted
class dtypes_by_their_size(LocalCommunicator):
    """A message of another dtype of the same size is received silently."""

    def isend(self, array, dst, tag):
        if tag >= OURS or array.dtype.hasobject or array.dtype.itemsize not in (4, 8):
            return super().isend(array, dst, tag)
        work = FutureWork()
        end = lambda error: work.succeed() if error is None else work.fail(error)  # noqa: E731
        self._boxes[dst].deliver(self.rank, tag, as_bytes(array), end, None)
        return work


@planted
class ends_in_wait_alone(LocalCommunicator):
    """A receive reports its end only after a wait."""

    def irecv(self, array, src, tag):
        work = super().irecv(array, src, tag)
        if tag < OURS:
            wait, waited = work.wait, []
            work.wait = lambda timeout=None: waited.append(1) or wait(timeout)
            done, work.is_completed = work.is_completed, lambda: bool(waited) and done()
        return work


@planted
class result_of_nothing(LocalCommunicator):
    """The result of an asynchronous collective is nothing."""

    def run(self, call, timeout_s, async_op=False):
        work = super().run(call, timeout_s, async_op)
        if async_op:
            work.result = lambda: None
        return work


@planted
class ends_once(LocalCommunicator):
    """A second wait for an asynchronous collective is an error."""

    def run(self, call, timeout_s, async_op=False):
        work = super().run(call, timeout_s, async_op)
        if async_op:
            wait, waited = work.wait, []

            def once(timeout=None):
                if waited:
                    raise DistError("it has been waited for")
                done = wait(timeout)
                waited.append(1)
                return done

            work.wait = once
        return work


@planted
class every_hundredth(LocalCommunicator):
    """Every hundredth message to a rank comes twice."""

    sent = 0

    def isend(self, array, dst, tag):
        if tag < OURS:
            self.sent += 1
            if self.sent % 100 == 0:
                self._boxes[dst].deliver(self.rank, tag, bytes(as_bytes(array)), dtype=array.dtype)
        return super().isend(array, dst, tag)


@planted
class gauges_that_fail(LocalCommunicator):
    """The query that `rankwise top` sends raises an error."""

    def gauges(self):
        raise KeyError("tcp")


@planted
class gauges_that_shrink(LocalCommunicator):
    """The count of moved bytes goes down."""

    moved = 0

    def gauges(self):
        self.moved -= 1
        return super().gauges()._replace(moved_nbytes={"memory": self.moved})
