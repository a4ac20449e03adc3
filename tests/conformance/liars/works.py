"""Bugs in works, callbacks and deadlines, and in what ranks that disagree are told."""

import threading
from dataclasses import replace

from honest import planted

from rankwise import CollectiveMismatchError
from rankwise.backends import FutureWork
from rankwise_local import LocalCommunicator


@planted
class reports_early(LocalCommunicator):
    """The work of an asynchronous collective ends as soon as the call is issued."""

    def run(self, call, timeout_s, async_op=False):
        work = super().run(call, timeout_s, async_op)
        if async_op:
            work.is_completed = lambda: True
        return work


@planted
class calls_back_early(LocalCommunicator):
    """The callbacks of an asynchronous collective of many elements are called as it is issued."""

    def run(self, call, timeout_s, async_op=False):
        work = super().run(call, timeout_s, async_op)
        if async_op and call.op != "barrier" and call.array.size > 1_000:
            work.add_done_callback = lambda callback: callback(work)
        return work


@planted
class holds_a_lock(LocalCommunicator):
    """Callbacks of receives run with a lock held that an isend needs."""

    def __init__(self, context):
        super().__init__(context)
        self.lock = threading.Lock()

    def isend(self, array, dst, tag):
        if tag >= 2**30:
            return super().isend(array, dst, tag)
        if not self.lock.acquire(timeout=20):
            raise RuntimeError("the lock is held for ever")
        self.lock.release()
        return super().isend(array, dst, tag)

    def irecv(self, array, src, tag):
        work = super().irecv(array, src, tag)
        if tag < 2**30:
            add = work.add_done_callback
            work.add_done_callback = lambda callback: add(lambda done: self._locked(callback, done))
        return work

    def _locked(self, callback, work):
        with self.lock:
            callback(work)


@planted
class waits_as_it_is_issued(LocalCommunicator):
    """An asynchronous collective returns when the others have come."""

    def run(self, call, timeout_s, async_op=False):
        work = super().run(call, timeout_s, async_op)
        if async_op:
            work.wait()
        return work


@planted
class waits_with_much(LocalCommunicator):
    """An asynchronous broadcast of many elements returns when it has ended."""

    def run(self, call, timeout_s, async_op=False):
        work = super().run(call, timeout_s, async_op)
        if async_op and call.op == "broadcast" and call.array.size > 4_000:
            work.wait()
        return work


@planted
class no_truth(LocalCommunicator):
    """`wait` of an asynchronous collective returns nothing."""

    def run(self, call, timeout_s, async_op=False):
        work = super().run(call, timeout_s, async_op)
        if async_op:
            wait = work.wait
            work.wait = lambda timeout=None: wait(timeout) and None
        return work


@planted
class only_its_own_time(LocalCommunicator):
    """A time-out below five seconds counts as five."""

    def run(self, call, timeout_s, async_op=False):
        return super().run(call, max(5.0, timeout_s), async_op)

    def recv(self, array, src, tag, timeout_s):
        return super().recv(array, src, tag, max(5.0, timeout_s))


@planted
class groups_own_time(LocalCommunicator):
    """A call's own time-out is ignored: that of the group counts."""

    def run(self, call, timeout_s, async_op=False):
        return super().run(call, min(6.0, self.context.timeout_s), async_op)


class Told(LocalCommunicator):
    """A communicator that may compare something else than what was called."""

    def told(self, call):
        return call

    def compare_and_run(self, call, algorithm, sequence, deadline):
        return super().compare_and_run(self.told(call), algorithm, sequence, deadline)


@planted
class any_root(Told):
    """Ranks that name different roots get no error."""

    def told(self, call):
        return replace(call, root=0) if call.op == "broadcast" else call


@planted
class any_reduce_op(Told):
    """Ranks that name different reduce ops get no error."""

    def told(self, call):
        from rankwise import ReduceOp

        return replace(call, reduce_op=ReduceOp.SUM) if call.op == "all_reduce" else call


@planted
class any_order(Told):
    """Ranks whose arrays lie in different memory orders are not told from those whose arrays lie alike."""

    def told(self, call):
        return replace(call, reordered=None)


@planted
class dead_after_a_mismatch(LocalCommunicator):
    """A group whose ranks have disagreed once is unusable."""

    def compare_and_run(self, call, algorithm, sequence, deadline):
        try:
            return super().compare_and_run(call, algorithm, sequence, deadline)
        except CollectiveMismatchError as error:
            self.give_up(error)
            raise


@planted
class blames_the_next(LocalCommunicator):
    """The error names the rank after the odd one."""

    def compare_and_run(self, call, algorithm, sequence, deadline):
        try:
            return super().compare_and_run(call, algorithm, sequence, deadline)
        except CollectiveMismatchError as error:
            raise CollectiveMismatchError(str(error), [(rank + 1) % self.size for rank in error.odd_ranks]) from error


@planted
class result_of_another(LocalCommunicator):
    """Asynchronous collectives of one group may overtake each other."""

    issued = 0

    def run(self, call, timeout_s, async_op=False):
        if not async_op or call.op == "barrier" or call.array.size % 100:
            return super().run(call, timeout_s, async_op)
        work = FutureWork()

        def later():
            try:
                self.compare_and_run(call, self.algorithm(call), next(self.numbers), _deadline(timeout_s))
                work.succeed()
            except BaseException as error:
                work.fail(error)

        self.issued += 1
        threading.Timer(0.05 * ((self.issued + self.rank) % 2), later).start()
        return work


@planted
class lets_long_ones_lag(LocalCommunicator):
    """An asynchronous all_reduce of many elements may end later than what was issued after it."""

    def run(self, call, timeout_s, async_op=False):
        if not async_op or call.op != "all_reduce" or call.array.size < 100_000:
            return super().run(call, timeout_s, async_op)
        work, own = FutureWork(), replace(call, array=call.array.copy())
        done = super().run(own, timeout_s, True)

        def later():
            done.wait()
            call.array[...] = own.array
            work.succeed()

        threading.Timer(0.3, later).start()
        return work


def _deadline(timeout_s):
    from rankwise.backends import Deadline

    return Deadline(timeout_s)
