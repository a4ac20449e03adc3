"""A double of the few entry points of CuPy and NCCL that the plugin uses: it does on the host what they do.

Calls are recorded. Each stream is a thread that does what is put on it in order, so that wrong orders show as wrong
data. NCCL's calls meet those of the other ranks, which are threads of the same process. `test_signatures.py` compares
the double with CuPy and with the plugin's binding.

It is as hostile as the real ones may be:

- a communicator is busy after each call, at least once when it is asked, and within the first call of each kind until
  the peers have made it too; to use it meanwhile, or after its end, is an error;
- with `Fabric.blocking` such calls block instead, as NCCL_COMM_BLOCKING=1 has them do;
- threads begin on device 0, and what chooses or uses a device makes a context there (`Rank.contexts`);
- to destroy a communicator waits for all that is pending on it;
- events never raise: a query returns a status;
- a query makes captures invalid, unless the thread is relaxed;
- a send is over when it has been received, however short it is;
- what a stream does comes late now and then, so that streams finish in any order;
- each call of both libraries can be made to fail with each status (`Rank.fails`).
"""

from __future__ import annotations

import ctypes
import itertools
import queue
import random
import threading
import time
import types
import uuid
import weakref
from collections import defaultdict
from typing import Any

import numpy as np
from fabric import PATIENCE_S, Fabric

from rankwise_nccl.library.api import Api
from rankwise_nccl.library.binding import NcclError
from rankwise_nccl.library.datatypes import TYPES

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

DTYPES = {
    number: np.dtype(getattr(ml_dtypes, name, None) or name)
    for name, number in TYPES.items()
    if hasattr(np, name) or ml_dtypes is not None
}
SIZES = {number: dtype.itemsize for number, dtype in DTYPES.items()}
REDUCE = {0: np.add, 1: np.multiply, 2: np.maximum, 3: np.minimum, 4: np.add}


class Array:
    """What the plugin sees of a `cupy.ndarray`, over memory of the host."""

    def __init__(self, host: np.ndarray, device: int = 0) -> None:
        self.host, self.dtype, self.shape, self.size, self.nbytes = host, host.dtype, host.shape, host.size, host.nbytes
        self.data = types.SimpleNamespace(ptr=host.ctypes.data)
        self.device = types.SimpleNamespace(id=device)


class Rank:
    """The double's state for one rank: its log, its device, and CuPy as this rank sees it."""

    def __init__(self, fabric: Fabric | None = None, device: int = 0) -> None:
        self.fabric = fabric or Fabric()
        self.log: list[tuple[Any, ...]] = []
        self.device = device
        self.numbers = itertools.count(100)
        self.default: dict[int, Any] = {}
        self.events: Any = weakref.WeakValueDictionary()
        self.streams: Any = weakref.WeakValueDictionary()
        self.local = threading.local()
        self.local.device = device  # as the program has chosen
        #: Devices on which the process has a context.
        self.contexts = {device}
        #: The graph that is being captured.
        self.graph: Graph | None = None
        #: Which calls fail, and with which status of their library.
        self.fails: dict[str, int] = {}
        #: Whether streams capture a graph, or the devices whose streams do; default streams never do.
        self.capturing: bool | set[int] = False
        #: Names of NCCL's calls that fail, and on which device.
        self.refused: set[tuple[str, int]] = set()
        self.async_error: Exception | None = None
        self.api = Api(types.SimpleNamespace(empty=self.empty), self._cuda(), self._nccl(), self.relax)

    def names(self) -> list[str]:
        """Return the names of the calls so far."""
        return [entry[0] for entry in self.log]

    def empty(self, shape: int, dtype: str) -> Array:
        self.log.append(("empty", shape))
        return Array(np.empty(shape, dtype), self.current())

    def current(self) -> int:
        return getattr(self.local, "device", 0)

    def choose(self, device: int) -> None:
        """Make a device the current one, which makes a context there."""
        self.local.device = device
        self.contexts.add(device)

    def relax(self) -> None:
        self.local.relaxed = True

    def used(self, name: str) -> None:
        """Note a call of CUDA that makes a context on the current device; fail if it is to."""
        self.contexts.add(self.here())
        if name in self.fails:
            raise CUDARuntimeError(self.fails[name])

    def query(self, event: int) -> int:
        """Return what CUDA says of an event; it raises nothing."""
        self.contexts.add(self.here())
        if self.graph is not None and not getattr(self.local, "relaxed", False):
            self.graph.valid = False
            return 900
        if "eventQuery" in self.fails:
            return self.fails["eventQuery"]
        return 0 if self.events[event].happened.is_set() else 600

    def here(self) -> int:
        """Return the current device, as the plugin asks for it."""
        return int(self.api.cuda.runtime.getDevice())

    def chosen(self) -> dict[int, Any]:
        """Return the streams that this thread has made the current ones, by device."""
        streams: dict[int, Any] = self.local.__dict__.setdefault("streams", {})
        return streams

    def get_current_stream(self, device_id: int = -1) -> Any:
        device = self.here() if device_id == -1 else device_id
        stream = self.chosen().get(device)
        if stream is None:
            with self.fabric.mutex:
                stream = self.default.get(device) or self.default.setdefault(device, self.api.cuda.Stream(null=True))
        return stream

    def copy(self, dst: int, src: int, size: int, kind: int, stream: int) -> None:
        self.log.append(("memcpyAsync", size))
        self.used("memcpyAsync")
        self.streams[stream].put(lambda: ctypes.memmove(dst, src, size))

    def refuse(self, name: str) -> None:
        """Fail if this call of NCCL is to."""
        if name in self.fails:
            raise NcclError(self.fails[name], "the last words of NCCL")

    def _cuda(self) -> Any:
        runtime = types.SimpleNamespace(
            getDevice=self.current,
            memcpyAsync=self.copy,
            eventQuery=self.query,
            CUDARuntimeError=CUDARuntimeError,
            memcpyDeviceToDevice=3,
            deviceGetPCIBusId=lambda device: f"0000:0{device}:00.0",
        )
        own = {kind.__name__: type(kind.__name__, (kind,), {"owner": self}) for kind in (Event, Stream, Device)}
        return types.SimpleNamespace(runtime=runtime, get_current_stream=self.get_current_stream, **own)

    def _nccl(self) -> Any:
        rank = self

        class NcclCommunicator(Communicator):
            owner = rank

        def groupStart() -> None:
            rank.log.append(("groupStart",))
            rank.refuse("groupStart")
            if not getattr(rank.local, "group", None):
                rank.local.broken = False
            rank.local.group = [*getattr(rank.local, "group", []), []]

        def groupEnd() -> None:
            rank.log.append(("groupEnd",))
            *outer, ops = rank.local.group
            rank.local.group = outer
            if outer:
                outer[-1].extend(ops)
                return
            rank.refuse("groupEnd")
            if rank.local.broken:  # nothing is done of a group in which a call has failed
                raise NcclError(5, "the end of a group")
            begin(rank, ops)

        def get_unique_id() -> bytes:
            rank.log.append(("get_unique_id",))
            rank.refuse("get_unique_id")
            # Bytes above 127, as real ids have.
            return (b"\xff\x80" + uuid.uuid4().bytes).ljust(128, b"\0")

        return types.SimpleNamespace(
            NcclCommunicator=NcclCommunicator,
            NcclError=NcclError,
            groupStart=groupStart,
            groupEnd=groupEnd,
            get_unique_id=get_unique_id,
            get_version=lambda: 22400,
            available=True,
        )


class CUDARuntimeError(RuntimeError):
    """As CuPy has it."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"cudaError{status}: CUDA says {status}")


class Event:
    """Happens when its stream comes to it."""

    owner: Rank

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.owner.used("Event")
        self.number = self.ptr = next(self.owner.numbers)
        self.owner.events[self.ptr] = self
        self.happened = threading.Event()
        #: The graph in whose capture it was recorded last.
        self.graph: Graph | None = None

    def record(self, stream: Any = None) -> None:
        self.owner.log.append(("record", self.number, stream.ptr))
        self.owner.used("record")
        self.graph = stream.graph
        if self.graph is None:
            stream.put(self.happened.set)

    @property
    def done(self) -> bool:
        """What CuPy says, which is nothing but whether the status is 0."""
        return self.owner.query(self.ptr) == 0


class Graph:
    """What was put on the streams of a capture, in the order in which it was put there."""

    def __init__(self) -> None:
        self.tasks: list[Any] = []
        self.valid = True

    def put(self, task: Any) -> None:
        self.tasks.append(task)

    def launch(self, stream: Any) -> None:
        for task in self.tasks:
            stream.put(task)


class Stream:
    """A thread that does what is put on it, in order."""

    owner: Rank

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        self.owner.used("Stream")
        self.ptr = 0 if null else next(self.owner.numbers)
        self.device = self.owner.here()
        self.graph: Graph | None = None
        self.tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.owner.streams[self.ptr] = self
        threading.Thread(target=work_off, args=(self.tasks, self.owner.fabric.late), daemon=True).start()

    def __del__(self) -> None:
        if hasattr(self, "tasks"):
            self.tasks.put(None)

    def put(self, task: Any) -> None:
        if self.graph is not None:
            self.graph.put(task)
        else:
            self.tasks.put(task)

    def wait_event(self, event: Any) -> None:
        self.owner.log.append(("wait_event", event.number, self.ptr))
        self.owner.used("wait_event")
        if event.graph is not None:
            self.graph = event.graph
        else:
            self.put(lambda: event.happened.wait(PATIENCE_S))

    def begin_capture(self, mode: Any = None) -> None:
        self.graph = self.owner.graph = Graph()

    def end_capture(self) -> Graph:
        graph, self.owner.graph = self.owner.graph, None
        for stream in list(self.owner.streams.values()):
            stream.graph = None
        if graph is None or not graph.valid:
            raise CUDARuntimeError(901)
        return graph

    def is_capturing(self) -> bool:
        capturing = self.owner.capturing
        flagged = capturing if isinstance(capturing, bool) else self.device in capturing
        return flagged or self.graph is not None

    def synchronize(self) -> None:
        over = threading.Event()
        self.put(over.set)
        assert over.wait(PATIENCE_S)

    def __enter__(self) -> Any:
        self.before = self.owner.chosen().get(self.device)
        self.owner.chosen()[self.device] = self
        return self

    def __exit__(self, *_: Any) -> None:
        self.owner.chosen()[self.device] = self.before


class Device:
    """Makes a device the current one of the thread."""

    owner: Rank
    compute_capability = "90"

    def __init__(self, device: int | None = None) -> None:
        self.id = device

    def __enter__(self) -> Any:
        self.before = self.owner.current()
        self.owner.choose(self.id)
        return self

    def __exit__(self, *_: Any) -> None:
        self.owner.choose(self.before)


class Job:
    """What NCCL has been asked in one group, and does when all the peers that it takes have asked too."""

    def __init__(self, comms: list[Communicator], keys: list[tuple[Communicator, Any, Any]], then: Any) -> None:
        self.comms, self.keys, self.then, self.asked = comms, keys, then, False
        self.lock = threading.Lock()  # threads may ask about it through several communicators
        for comm, key, end in keys:
            comm.owner.fabric.put((comm.world, key), end)

    def step(self) -> None:
        """Do it once, if it can be done; whoever asks first is told to ask again."""
        with self.lock:
            asked, self.asked = self.asked, True
            if asked and self.comms and self.connected():
                self.then()
                for comm in self.comms:
                    comm.job = None
                self.comms = []

    def connected(self) -> bool:
        """Tell whether the peers have come; each kind of call needs that once."""
        return all(len(comm.owner.fabric.come((comm.world, key))) >= comm.wanted(key) for comm, key, _ in self.keys)


def begin(owner: Rank, operations: list[Any]) -> None:
    """Begin what one group asks for."""
    comms = list(dict.fromkeys(operation[0] for operation in operations))
    keys = [(operation[0], *way(operation)) for operation in operations]
    job = Job(comms, keys, lambda: launch(owner, operations))
    for comm in comms:
        comm.job = job
    for comm in comms:
        comm.proceed()


def way(operation: Any) -> tuple[Any, Any]:
    """Return what an operation needs a connection for, and as whom it comes."""
    comm, name, rest = operation[0], operation[1], operation[5]
    if name == "send":
        return ("connect", comm.rank, rest[3]), "sender"
    if name == "recv":
        return ("connect", rest[3], comm.rank), "receiver"
    return ("connect", name), comm.rank


class Communicator:
    """NCCL on the host: operations begin when their stream comes to them, and end when the peers' do."""

    owner: Rank

    def __init__(self, ndev: int, commId: bytes, rank: int) -> None:
        self.size, self.rank, self.comm = ndev, rank, 4711
        self.over = threading.Event()
        self.count = itertools.count()
        self.factors: dict[int, Any] = {}
        self.device = self.owner.here()
        self.owner.contexts.add(self.device)
        self.job: Job | None = None
        #: Memory that has been registered, by its handle.
        self.registered: dict[int, tuple[int, int]] = {}
        #: How many operations are on their stream.
        self.running = 0
        #: How many of them use memory.
        self.inside = 0
        self.freed = False
        self.refused_gpu = self.owner.fabric.refuse_shared_gpus and ndev > 1
        self.owner.log.append(("commInitRank", ndev, rank, self.device))
        self.owner.refuse("commInitRank")
        self._refuse("commInitRank")
        self.world = commId
        #: How many messages have gone each way.
        self.letters: dict[Any, int] = defaultdict(int)
        self.give(Job([self], [(self, "here", rank)], lambda: None))

    def wanted(self, key: Any) -> int:
        """Return how many have to come for a connection."""
        return 2 if key[0] == "connect" and len(key) == 3 else self.size

    def give(self, job: Job) -> None:
        """Begin a job of this communicator alone."""
        self.job = job
        self.proceed()

    def proceed(self) -> None:
        """Wait for what has begun if the environment has calls block."""
        if self.owner.fabric.blocking:
            while not self.over.is_set() and self.step():
                time.sleep(0.001)
            if self.over.is_set():
                raise NcclError(3, "aborted")

    def step(self) -> bool:
        """Go on with what has begun, and tell whether that is still being done."""
        job = self.job
        if job is not None:
            job.step()
        return self.job is not None

    def use(self, name: str) -> None:
        """Begin a call: not while the last one is being done, and never after the end."""
        if self.freed:
            self.owner.fabric.crimes.append(f"{name} on a communicator that has been freed")
        if self.job is not None:
            self.owner.local.broken = True
            raise NcclError(4, "Attempt to use communicator before the previous operation returned ncclSuccess")

    def scaling(self, factor: Any) -> int:
        """Make an op that multiplies by a factor before it sums."""
        self.factors[number := 5 + len(self.factors)] = factor
        return number

    def abort(self) -> None:
        self.owner.log.append(("abort", self.owner.here()))
        self.owner.refuse("abort")
        self._end()

    def register(self, buffer: int, nbytes: int) -> int:
        self.owner.log.append(("register", buffer, nbytes))
        self.use("register")
        self._refuse("register")
        handle = next(self.owner.numbers)
        self.registered[handle] = buffer, nbytes
        return handle

    def deregister(self, handle: int) -> None:
        self.owner.log.append(("deregister", *self.registered.pop(handle)))
        self.use("deregister")

    def finalize(self) -> None:
        self.owner.log.append(("finalize", self.owner.here()))
        self.use("finalize")
        if self.registered:
            self.owner.fabric.crimes.append("a communicator was finalized with memory registered")
        self.owner.refuse("finalize")
        job = Job([self], [], lambda: None)
        job.connected = lambda: self.running == 0  # type: ignore[method-assign]
        self.give(job)

    def destroy(self) -> None:
        self.owner.log.append(("destroy", self.owner.here()))
        self.use("destroy")
        self.owner.fabric.wait_for(lambda: self.running == 0)
        self._end()

    def _refuse(self, name: str) -> None:
        """Fail if this call is to fail on this device, and with it the group that it is in."""
        status = self.owner.fails.get(name, 4 if (name, self.device) in self.owner.refused else 0)
        if status:
            self.owner.local.broken = True
            raise NcclError(status, f"{name} on device {self.device}")

    def _end(self) -> None:
        if self.freed:
            self.owner.fabric.crimes.append("a communicator was freed twice")
        self.freed = True
        with self.owner.fabric.mutex:
            self.over.set()
            self.owner.fabric.tell()
        self.owner.fabric.wait_for(lambda: not self.inside)

    def check_async_error(self) -> bool:
        if self.freed:
            self.owner.fabric.crimes.append("a question about a communicator that has been freed")
        self.owner.refuse("async")
        if self.owner.async_error is not None:
            raise self.owner.async_error
        if self.refused_gpu:
            raise NcclError(5, "invalid usage (run with NCCL_DEBUG=WARN for details)")
        return self.step()

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:
        self._call("allReduce", stream, count, datatype, op, sendbuf, recvbuf)

    def reduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int) -> None:
        self._call("reduce", stream, count, datatype, op, sendbuf, recvbuf, root)

    def broadcast(self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int) -> None:
        self._call("broadcast", stream, count, datatype, 0, sendbuff, recvbuff, root)

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        self._call("allGather", stream, count, datatype, 0, sendbuf, recvbuf)

    def reduceScatter(self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int) -> None:
        self._call("reduceScatter", stream, recvcount, datatype, op, sendbuf, recvbuf)

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        self._call("send", stream, count, datatype, 0, sendbuf, 0, peer)

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        self._call("recv", stream, count, datatype, 0, 0, recvbuf, peer)

    def _call(self, name: str, stream: int, count: int, datatype: int, *rest: int) -> None:
        owner = self.owner
        owner.log.append((name, count, datatype, *rest))
        self.use(name)
        self._refuse(name)
        assert owner.streams[stream].device == self.device, "a stream of another device"
        operation = (self, name, stream, count, datatype, rest)
        groups = getattr(owner.local, "group", None)
        if groups:
            groups[-1].append(operation)
        else:
            begin(owner, [operation])


def work_off(tasks: queue.SimpleQueue[Any], late: random.Random) -> None:
    while (task := tasks.get()) is not None:
        if late.random() < 0.1:
            time.sleep(0.001)
        task()


def launch(owner: Rank, operations: list[Any]) -> None:
    """Put the operations of one group on their streams: all of a stream as one task, sends before receives.

    In a graph, which is launched on one stream, they are one task all together, as its branches go on at the same time.
    """
    together = defaultdict(list)
    for operation in operations:
        stream = owner.streams[operation[2]]
        together[stream.graph or stream].append(operation)
    for place, ours in together.items():
        ours.sort(key=lambda operation: operation[1] == "recv")
        replayed = isinstance(place, Graph)
        for operation in ours if not replayed else ():
            counted(operation[0], 1)
        place.put(lambda ours=ours, replayed=replayed: run(ours, replayed))


def counted(comm: Communicator, more: int) -> None:
    with comm.owner.fabric.mutex:
        comm.running += more
        comm.owner.fabric.tell()


def run(operations: list[Any], replayed: bool) -> None:
    """Do what a group asks of one stream; a send is over when it has been received."""
    try:
        for comm, taken in [(operation[0], begun(operation)) for operation in operations]:
            comm.owner.fabric.wait_for(lambda: taken() or comm.over.is_set())  # noqa: B023
    finally:
        for operation in operations if not replayed else ():
            counted(operation[0], -1)


def begun(operation: Any) -> Any:
    """Do one operation, of which an abort waits for the end, unless that has been before."""
    comm = operation[0]
    with comm.owner.fabric.mutex:
        if comm.over.is_set():
            return lambda: True
        comm.inside += 1
    try:
        return move(operation)
    finally:
        with comm.owner.fabric.mutex:
            comm.inside -= 1
            comm.owner.fabric.tell()


def move(operation: Any) -> Any:
    """Do one operation, and return what tells whether it is over."""
    comm, name, _, count, datatype, rest = operation
    nbytes = count * SIZES[datatype]
    if name == "send":
        return post(comm, rest[3], ctypes.string_at(rest[1], nbytes))
    if name != "recv":
        collective(comm, name, count, datatype, rest)
    elif (data := taken(comm, rest[3])) is not None:
        if len(data) != nbytes:  # NCCL does not compare them, and need never end
            comm.over.wait(PATIENCE_S)
        else:
            ctypes.memmove(rest[2], data, nbytes)
    return lambda: True


def letter(comm: Communicator, source: int, target: int, end: str) -> Any:
    """Return the place of the next message from one rank to another, as one end counts them."""
    comm.letters[source, target, end] += 1
    return comm.world, "letter", source, target, comm.letters[source, target, end]


def post(comm: Communicator, peer: int, data: bytes) -> Any:
    """Send, and return what tells whether that has been received."""
    fabric, place = comm.owner.fabric, letter(comm, comm.rank, peer, "sender")
    fabric.put(place, "sender", data)
    return lambda: "receiver" in fabric.come(place)


def taken(comm: Communicator, peer: int) -> Any:
    """Wait for a message, and return it; None if the communicator is aborted first."""
    fabric, place = comm.owner.fabric, letter(comm, peer, comm.rank, "receiver")
    fabric.wait_for(lambda: "sender" in fabric.come(place) or comm.over.is_set())
    if "sender" not in fabric.come(place):
        return None
    data = fabric.get(place, "sender")
    fabric.put(place, "sender")  # the memory is no longer needed
    fabric.put(place, "receiver")
    return data


def collective(comm: Communicator, name: str, count: int, datatype: int, rest: Any) -> None:
    fabric = comm.owner.fabric
    op, source, target, *root = rest
    place = comm.world, "table", next(comm.count)
    reads = count * (comm.size if name == "reduceScatter" else 1)
    dtype = DTYPES[datatype]
    given = None if name == "broadcast" and comm.rank != root[0] else ctypes.string_at(source, reads * dtype.itemsize)
    if op in comm.factors:
        with np.errstate(all="ignore"):
            given = (np.frombuffer(given, dtype) * comm.factors[op]).astype(dtype).tobytes()
        op = 0
    fabric.put(place, comm.rank, (name, count, datatype, op, root, given))
    fabric.wait_for(lambda: len(fabric.come(place)) == comm.size or comm.over.is_set())
    if len(fabric.come(place)) < comm.size:
        return
    calls = [fabric.get(place, rank) for rank in range(comm.size)]
    assert len({str(call[:5]) for call in calls}) == 1, f"the ranks call different things: {calls}"
    inputs = [None if call[5] is None else np.frombuffer(call[5], dtype) for call in calls]
    result = combine(name, op, inputs, count, comm.rank, root)
    if result is not None:
        ctypes.memmove(target, result.tobytes(), result.nbytes)


def combine(name: str, op: int, inputs: Any, count: int, rank: int, root: list[int]) -> Any:
    if name == "broadcast":
        return inputs[root[0]]
    if name == "allGather":
        return np.concatenate(inputs)
    with np.errstate(all="ignore"):  # NCCL warns of nothing
        total = REDUCE[op].reduce(inputs, axis=0)
    if op == 4:
        total = total / len(inputs)
    total = total.astype(inputs[0].dtype)
    if name == "reduce":
        return total if rank == root[0] else None
    return total[rank * count : (rank + 1) * count] if name == "reduceScatter" else total
