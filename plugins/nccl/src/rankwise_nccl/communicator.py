"""`NcclCommunicator`: one group on NCCL.

Data is moved as bytes and reduced by NCCL's own types. Which call of NCCL is made depends only on what all ranks know:
sizes, and never on where in memory the parts lie.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, ClassVar

from rankwise.backends import (
    COMPLETED,
    Array,
    Call,
    Communicator,
    CompletedWork,
    Context,
    Deadline,
    ReduceOp,
    Work,
    anew,
)
from rankwise.errors import DistError, DistTimeoutError, UnsupportedOperationError
from rankwise_nccl.group.notices import Notices
from rankwise_nccl.group.watchdog import Watchdog
from rankwise_nccl.library.api import Api, grouped
from rankwise_nccl.library.datatypes import BYTE, reduction
from rankwise_nccl.library.failures import translate
from rankwise_nccl.operations.messages import SelfMessages, receiving, sending
from rankwise_nccl.operations.packing import Packed, alike
from rankwise_nccl.operations.reducer import Reducer
from rankwise_nccl.options import Options
from rankwise_nccl.queues.group_queues import CommQueues
from rankwise_nccl.queues.queue import CommQueue, issue
from rankwise_nccl.queues.works import BarrierWork, NcclWork

#: How long closing waits for an abort; one that takes longer is left to a thread that ends with the process.
_ABORT_S = 5.0


class _Batch(threading.local):
    """The works that a thread has collected in an open batch; None where none is open."""

    works: list[NcclWork] | None = None


class NcclCommunicator(Communicator):
    """One group on NCCL.

    Args:
        context: What the core says of the group.
        api: CuPy.
    """

    def __init__(self, context: Context, api: Api) -> None:
        options = context.options_as(Options)
        super().__init__(context)
        self._api, self._nccl = api, api.nccl
        notices = Notices(context.store if context.size > 1 else None, context.global_ranks[context.rank])
        self._watchdog = Watchdog(self, notices, f"rankwise watch {context.name}", self._whom)
        self._all = CommQueues(api, context, self._watchdog.fail, self._flush, options.buffers)
        self._notices = notices
        self._numbers = itertools.count()
        self._batch = _Batch()
        #: By reduce op and dtype; without those of PREMUL_SUM, each of which has a factor.
        self._reducers: dict[Any, Reducer] = {}
        self._to_self = SelfMessages()
        self._token: Array | None = None

    def start(self, device: int) -> None:
        """Start NCCL on a device, and return when that is done.

        Raises:
            DistTimeoutError: Not all ranks came; the missing ones are named.
        """
        queue = self._all.collective(device)
        if not queue.started.wait(self.context.timeout_s) or self.failure is not None:
            absent = self._all.absent(queue)
            who = f"ranks {', '.join(map(str, absent))} have not come" if absent else "all ranks have come"
            error = self.failure or DistTimeoutError(
                f"starting NCCL for {queue.name}: not done within {self.context.timeout_s:g} s; {who}"
            )
            error = self._watchdog.fail(error)
            self._watchdog.stop(1.0)
            raise error

    def queues(self) -> list[CommQueue]:
        """Return all queues, for the watchdog."""
        return self._all.all()

    # ------------------------------------------------------------------ point to point

    def isend(self, array: Array, dst: int, tag: int) -> Work:
        """Begin to send, by ncclSend; see `Communicator.isend`."""
        return self._send(array, dst, self.context.timeout_s, "isend")

    def irecv(self, array: Array, src: int | None, tag: int) -> Work:
        """Begin to receive, by ncclRecv; the sender is always known, as the capability table says."""
        return self._recv(array, src, self.context.timeout_s, "irecv")

    def send(self, array: Array, dst: int, tag: int, timeout_s: float) -> None:
        """Send; what the current stream does next comes after it."""
        self._send(array, dst, timeout_s, "send").wait()

    def recv(self, array: Array, src: int | None, tag: int, timeout_s: float) -> int:
        """Receive; what the current stream does next comes after it. Return the sender's group rank."""
        work = self._recv(array, src, timeout_s, "recv")
        work.wait()
        return work.source_rank()

    # ------------------------------------------------------------------ collectives

    def run(self, call: Call, timeout_s: float, async_op: bool = False) -> Work:
        """Begin a collective; NCCL's are all asynchronous, and only a barrier blocks the host."""
        work = self._OPERATIONS[call.op](self, call, timeout_s)
        if call.op == "barrier" and not async_op and not self._collecting():
            work.wait()
        return work

    def own_collectives(self) -> Collection[str]:
        """Return those that NCCL does, one way or the other."""
        return self._OPERATIONS

    def _broadcast(self, call: Call, timeout_s: float) -> Work:
        """By ncclBroadcast."""
        array, root = call.array, call.root
        address, nbytes = array.data.ptr, array.nbytes

        def issued(comm: Any, stream: int) -> None:
            comm.broadcast(address, address, nbytes, BYTE, root, stream)

        return self._begin("broadcast", nbytes, self._queue(array), issued, (array,), timeout_s)

    def _all_reduce(self, call: Call, timeout_s: float) -> Work:
        """In place, by ncclAllReduce."""
        array, how = call.array, self._reducer(call)
        address, count = array.data.ptr, array.size * how.width
        datatype, plain = how.datatype, how.plain

        def issued(comm: Any, stream: int) -> None:
            comm.allReduce(address, address, count, datatype, plain, stream)

        def scaled(comm: Any, stream: int) -> None:
            with how.number(comm) as number:
                comm.allReduce(address, address, count, datatype, number, stream)

        chosen = scaled if plain is None else issued
        return self._begin("all_reduce", count, self._queue(array), chosen, (array,), timeout_s)

    def _reduce(self, call: Call, timeout_s: float) -> Work:
        """By ncclReduce."""
        array, root, how = call.array, call.root, self._reducer(call)
        address, count = array.data.ptr, array.size * how.width
        target = address if root == self.rank else 0

        def issued(comm: Any, stream: int) -> None:
            with how.number(comm) as number:
                comm.reduce(address, target, count, how.datatype, number, root, stream)

        return self._begin("reduce", count, self._queue(array), issued, (array,), timeout_s)

    def _all_gather(self, call: Call, timeout_s: float) -> Work:
        """By ncclAllGather if the parts are alike, else by broadcasts."""
        parts, array = call.outs or (), call.array
        sizes = [part.nbytes for part in parts]
        total = sum(sizes)
        queue = self._queue(array)
        source = array.data.ptr
        if alike(sizes):
            packed, nbytes = Packed(self._api, queue, parts), array.nbytes

            def issued(comm: Any, stream: int) -> None:
                comm.allGather(source, packed.address(), nbytes, BYTE, stream)

            after = None if packed.in_place else packed.unpack
            return self._begin("all_gather", total, queue, issued, (array, *parts), timeout_s, after)

        def calls(comm: Any, stream: int) -> None:
            with grouped(self._nccl):
                for root, part in enumerate(parts):
                    if part.nbytes:
                        target = part.data.ptr
                        sent = source if root == self.rank else target
                        comm.broadcast(sent, target, part.nbytes, BYTE, root, stream)

        return self._begin("all_gather", total, queue, calls, (array, *parts), timeout_s)

    def _reduce_scatter(self, call: Call, timeout_s: float) -> Work:
        """By ncclReduceScatter if the parts are alike, else by reduces."""
        array, parts, how = call.array, call.ins or (), self._reducer(call)
        sizes = [part.nbytes for part in parts]
        total = sum(sizes)
        queue = self._queue(array)
        target = array.data.ptr
        if alike(sizes):
            packed, count = Packed(self._api, queue, parts), array.size * how.width

            def issued(comm: Any, stream: int) -> None:
                if not packed.in_place:
                    packed.pack(stream)
                with how.number(comm) as number:
                    comm.reduceScatter(packed.address(), target, count, how.datatype, number, stream)

            return self._begin("reduce_scatter", total, queue, issued, (array, *parts), timeout_s)

        def calls(comm: Any, stream: int) -> None:
            with how.number(comm) as number, grouped(self._nccl):
                for root, part in enumerate(parts):
                    if part.size:
                        result = target if root == self.rank else 0
                        comm.reduce(part.data.ptr, result, part.size * how.width, how.datatype, number, root, stream)

        return self._begin("reduce_scatter", total, queue, calls, (array, *parts), timeout_s)

    def _gather(self, call: Call, timeout_s: float) -> Work:
        return self._exchange(call, call.array, {call.root: call.array}, dict(enumerate(call.outs or ())), timeout_s)

    def _scatter(self, call: Call, timeout_s: float) -> Work:
        return self._exchange(call, call.array, dict(enumerate(call.ins or ())), {call.root: call.array}, timeout_s)

    def _all_to_all(self, call: Call, timeout_s: float) -> Work:
        outs = call.outs or ()
        return self._exchange(call, outs[self.rank], dict(enumerate(call.ins or ())), dict(enumerate(outs)), timeout_s)

    def _barrier(self, call: Call, timeout_s: float) -> Work:
        """Reduce one byte; waiting for it blocks the host until every rank has come."""
        queue = self._all.collective(self._home())
        if self._token is None or self._token.device.id != queue.device:
            with queue.on_device():
                self._token = self._api.cupy.empty(1, "uint8")
        token = self._token
        address, how = token.data.ptr, reduction(ReduceOp.MAX, token.dtype)

        def issued(comm: Any, stream: int) -> None:
            comm.allReduce(address, address, 1, how.datatype, how.op, stream)

        return self._begin("barrier", 1, queue, issued, (token,), timeout_s, kind=BarrierWork)

    #: How NCCL does each collective.
    _OPERATIONS: ClassVar[Mapping[str, Callable[[NcclCommunicator, Call, float], Work]]] = {
        "broadcast": _broadcast,
        "all_reduce": _all_reduce,
        "reduce": _reduce,
        "all_gather": _all_gather,
        "gather": _gather,
        "scatter": _scatter,
        "reduce_scatter": _reduce_scatter,
        "all_to_all": _all_to_all,
        "barrier": _barrier,
    }

    # ------------------------------------------------------------------ for the core

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Collect the operations that this thread begins, and hand them over to NCCL in one group at the end."""
        if self._collecting():
            yield
            return
        self._batch.works = []
        try:
            yield
        except BaseException:
            self._batch.works = None
            raise
        self._flush()
        self._batch.works = None

    def drain(self, timeout_s: float) -> None:
        """Wait until the device is done with what other ranks or streams rely on."""
        self._await(timeout_s)

    def abort(self, error: DistError) -> None:
        """End every operation with `error`, on the watchdog's thread; see `Communicator.abort`."""
        self._watchdog.abort(error)

    def give_up_for(self, error: DistError) -> DistError:
        """End the group for what this rank has met, about which nobody else can know better; return the first error."""
        if self.failure is None:
            self.on_broken(error)
            self.give_up_and_tell(error)
        return self.failure or error

    def close(self) -> None:
        """Give the NCCL communicators back; one that is broken is aborted instead, which waits for nobody."""
        try:
            if self.failure is None:
                self._await(self.context.timeout_s)
        except DistTimeoutError as error:
            raise self._watchdog.fail(error) from error
        finally:
            self._watchdog.stop(_ABORT_S)
            late = self._all.destroy()
            self._notices.close()
        if late and self.failure is None:
            raise DistTimeoutError(f"closing {late[0]}: NCCL has not let go; perhaps a peer has not closed its group")

    # ------------------------------------------------------------------ how an operation is begun

    def _begin(
        self,
        name: str,
        amount: int,
        queue: CommQueue,
        call: Callable[[Any, Any], None],
        buffers: tuple[Array, ...],
        timeout_s: float,
        after: Callable[[Any], None] | None = None,
        kind: type[NcclWork] = NcclWork,
    ) -> Work:
        self._alive()
        number = next(self._numbers)
        if not amount:
            return COMPLETED
        return self._submit(kind(queue, name, call, buffers, timeout_s, after, None, number))

    def _exchange(
        self, call: Call, like: Array, sent: dict[int, Array], received: dict[int, Array], timeout_s: float
    ) -> Work:
        """Send to and receive from several ranks, grouped; nothing is said about parts of no size."""
        going = [(peer, part) for peer, part in sent.items() if part.nbytes]
        coming = [(peer, part) for peer, part in received.items() if part.nbytes]

        def calls(comm: Any, stream: int) -> None:
            with grouped(self._nccl):
                for peer, part in going:
                    comm.send(part.data.ptr, part.nbytes, BYTE, peer, stream)
                for peer, part in coming:
                    comm.recv(part.data.ptr, part.nbytes, BYTE, peer, stream)

        buffers = tuple(part for _, part in (*going, *coming))
        return self._begin(call.op, len(buffers), self._queue(like), calls, buffers, timeout_s)

    def _send(self, array: Array, dst: int, timeout_s: float, verb: str) -> Work:
        self._alive()
        if not array.nbytes and dst != self.rank:
            return COMPLETED
        queue = self._all.message(self.rank, dst, array.device.id)
        work = sending(queue, array, self.context.global_ranks[dst], timeout_s, verb)
        if dst == self.rank:
            return self._meet(work, False)
        return self._submit(work)

    def _recv(self, array: Array, src: int | None, timeout_s: float, verb: str) -> Work:
        self._alive()
        if src is None:
            raise UnsupportedOperationError("backend 'nccl' cannot receive from just anyone; give the source")
        if not array.nbytes and src != self.rank:
            return CompletedWork(src)
        queue = self._all.message(src, self.rank, array.device.id)
        work = receiving(queue, array, src, self.context.global_ranks[src], timeout_s, verb)
        if src == self.rank:
            return self._meet(work, True)
        return self._submit(work)

    def _meet(self, work: NcclWork, is_receive: bool) -> Work:
        """Begin one end of a message to oneself; it is issued when the other end has come."""
        self._prepare(work)
        pair = self._to_self.meet(work, is_receive)
        if pair:
            self._put(pair)
        self._catch_up([work])
        self._watchdog.look()
        return work

    def _submit(self, work: NcclWork) -> Work:
        self._prepare(work)
        collected = self._batch.works
        if collected is not None:
            collected.append(work)
        else:
            self._put([work])
        return work

    def _put(self, works: list[NcclWork]) -> None:
        """Hand works over; the watchdog knows of them first, as NCCL may wait for the peers before it takes them."""
        for work in works:
            work.queue.entering.append(work)
        try:
            self._watchdog.look()
            self._put_at_once(works)
        except Exception as error:
            failure = self._broken(works, error)
            if self.failure is None:
                self._has_entered(works)
            raise failure from error  # the queue keeps the works, as NCCL may use their memory until it is aborted
        self._has_entered(works)
        self._catch_up(works)

    def _has_entered(self, works: list[NcclWork]) -> None:
        for work in works:
            with suppress(ValueError):  # an abort has cleared it
                work.queue.entering.remove(work)

    def _broken(self, works: list[NcclWork], error: Exception) -> DistError:
        """End works with what CUDA or NCCL has met, and return what all ranks raise for it."""
        failure = translate(error, works[0].title)
        failure = self.failure or failure
        if not isinstance(failure, UnsupportedOperationError):
            failure = self._watchdog.fail(failure)  # all ranks raise what one of them has found
        for work in works:
            work.end(anew(failure))
        return failure

    def _prepare(self, work: NcclWork) -> None:
        try:
            work.queue.prepare(work)
        except Exception as error:
            raise self._broken([work], error) from error

    def _put_at_once(self, works: list[NcclWork]) -> None:
        """Hand works over in one group where all their queues have started, else each queue's for itself."""
        queue = works[0].queue
        if len(works) == 1 or all(work.queue is queue for work in works):
            queue.put(works)
        else:
            self._put_on_several(works)

    def _put_on_several(self, works: list[NcclWork]) -> None:
        queues = list(dict.fromkeys(work.queue for work in works))
        with ExitStack() as locks:
            for queue in sorted(queues, key=id):
                locks.enter_context(queue.lock)
            if all(queue.comm is not None for queue in queues):
                issue(works, self._api)
                return
            for queue in queues:
                queue.put([work for work in works if work.queue is queue])

    def _catch_up(self, works: list[NcclWork]) -> None:
        """End works that were begun while the group was given up, and that the watchdog may not have seen."""
        if self.failure is not None:
            for work in works:
                if not work.look():
                    work.end(self.failure)

    def _flush(self) -> None:
        """Issue what this thread has collected in a batch that is still open."""
        works = self._batch.works
        if works:
            self._batch.works = []
            self._put(works)

    def _collecting(self) -> bool:
        return self._batch.works is not None

    def _alive(self) -> None:
        if self.failure is not None:
            raise anew(self.failure)

    # ------------------------------------------------------------------ within

    def _whom(self, work: NcclWork) -> Sequence[int] | None:
        """Return the global ranks that an operation waits for; None if that is not known."""
        if work.queue.comm is None:
            return self._all.absent(work.queue)
        if work.number is None:
            return work.peers
        return self._notices.missing(self.context.global_ranks, work.number)

    def _queue(self, array: Array) -> CommQueue:
        return self._all.collective(array.device.id)

    def _reducer(self, call: Call) -> Reducer:
        assert call.reduce_op is not None
        return self._reducer_of(call.reduce_op, call.array)

    def _reducer_of(self, op: ReduceOp, array: Array) -> Reducer:
        if op.factor is not None:
            return Reducer(op, array, self._api)
        key = (op.name, array.dtype)
        found = self._reducers.get(key)
        if found is None:
            found = self._reducers[key] = Reducer(op, array, self._api)
        return found

    def _home(self) -> int:
        """Return the device for an operation without an array: the first one used, or the one that is current."""
        used = self._all.devices()
        if used:
            return used[0]
        named = self.context.device_index
        return int(self._api.cuda.runtime.getDevice()) if named is None else named

    def _await(self, timeout_s: float) -> None:
        """Wait for collectives, for what was sent, and for what was received where a stream goes on after it.

        A receive that nobody has waited for may be one that nobody sends to.
        """
        deadline = Deadline(timeout_s)
        outgoing = self._all.outgoing()
        for queue in self._all.all():
            relied_on = queue in outgoing
            # A queue without works is waited for too: the peers start it together with this rank.
            if relied_on and not queue.started.wait(deadline.remaining()):
                raise DistTimeoutError(f"{queue.name}: NCCL has not started within {timeout_s:g} s")
            for work in queue.given():
                if relied_on or work.waited:
                    work.finish(deadline.remaining())
