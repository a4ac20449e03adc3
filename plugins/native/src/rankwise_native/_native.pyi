from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from typing_extensions import Buffer

API_VERSION: int
SOURCES: int
CONSTANTS: dict[str, int]

class FlightRecorder:
    on_failure: Callable[[Any], object] | None
    def __init__(self, make_entry: type, skipped: list[str], capacity: int, /) -> None: ...
    def trail(self, name: str, description: str, ranks: tuple[int, ...], /) -> Trail: ...
    def trails(self) -> list[Any]: ...
    def entries(self) -> list[Any]: ...
    def count(self) -> None: ...
    def clear(self) -> None: ...

class Trail:
    def rehearse(self, op: str, array: Any, calls: int, /) -> None: ...

class Turn:
    holder: Any
    queued: int
    watchers: int
    def take(self, holder: object, /) -> bool: ...

class Layout(Protocol):
    """Where what lies on a board: the numbers of this rank and of ranks, and offsets and sizes in bytes."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def control(self) -> int: ...
    @property
    def control_stride(self) -> int: ...
    @property
    def records(self) -> int: ...
    @property
    def data(self) -> int: ...
    @property
    def area_nbytes(self) -> int: ...
    @property
    def most_nbytes(self) -> int: ...

class Turns:
    _turn: int
    _parity: int
    waited_ns: int
    def attach(self, memory: memoryview, layout: Layout, may_spin: bool, /) -> None: ...
    def detach(self) -> None: ...
    def read_from(self, pids: tuple[int, ...], /) -> None: ...
    def arrive(self) -> bool: ...
    def doze(self, longest_s: float, /) -> bool: ...
    def wake(self) -> None: ...

class EngineState:
    leaving: bool

class FailureState:
    failing: bool

class ProgressState:
    owner: int
    callers: int
    last_drive: float

class PeerState:
    connection: Any
    gone: Any
    owed_nbytes: int

class ConnectionState:
    reader: Any
    mine: Any
    theirs: Any
    tls: Tls | None
    fd: int
    plain: bool
    closed: bool
    broken: bool
    deaf: bool
    writing: bool
    came_nbytes: int
    went_nbytes: int

class ReaderState:
    whole: Any
    start: int
    end: int

class GuardState:
    key: bytes
    number: int

    def made(self, number: int, head: bytes) -> bytes: ...

class PipeState:
    queue: Any
    rest: Any

class WindowState:
    unconfirmed: int

class CallKind(Protocol):
    """One kind of call: which of the ways in C it goes, what all ranks compare, and from where on parts are fetched."""

    way: int
    about: tuple[int, int, int, int, int]
    fetch_count: int

class CallHooks(Protocol):
    """What compiled calls leave to Python; the kinds are those that `learn` has returned."""

    tell: Callable[[], None]

    def wait(self, deadline: Any, /) -> Any:
        """Wait for those who are late, and return the deadline of the call; None or a time-out the first time."""
    def learn(self, name: str, array: Any, option: Any, numbers: tuple[int, ...], /) -> Any:
        """Return the `CallKind` of a call that has been prepared, or None."""
    def unreadable(self) -> BaseException:
        """Return why another rank's memory cannot be read."""
    def garbled(self) -> BaseException:
        """Return what is wrong with a rank that sends something else than its call has."""
    def failed(self, kind: Any, number: int, error: BaseException | None, /) -> None:
        """Raise why a call has failed; None if the calls differ."""
    def broken(self, kind: Any, number: int, error: BaseException | None, /) -> None:
        """Raise what all ranks raise after a public call that has failed."""

class Calls:
    def __init__(self, way: Turns | Wire | Relay, turn: Any, ops: dict[str, Any], hooks: CallHooks, /) -> None: ...
    def serve(self, trail: Trail, collected: Any, sequence: Iterator[int], /) -> None: ...
    def run(self, name: str, args: tuple[Any, ...], sequence: int, deadline: Any, /) -> bool: ...
    def compare(self, record: bytes, deadline: Any, /) -> bytes | None: ...
    def program(
        self, arrays: tuple[Any, ...], scratch: tuple[Any, ...], steps: list[tuple[str, tuple[Any, ...]]], /
    ) -> Program | None: ...
    def forget(self) -> None: ...

class Rings:
    capacity: int
    eager_nbytes: int
    head: int
    tail: int
    def __init__(self, memory: Buffer, place: tuple[int, int, int, int], bell: tuple[str, int], /) -> None: ...
    def write(self, first: int, length: int, marks: int, address: int, data: memoryview, /) -> bool: ...
    def ask_for_room(self) -> None: ...
    def wake(self) -> None: ...
    def has_room(self) -> bool: ...
    def has_news(self) -> bool: ...
    def next(self) -> tuple[int, int, int, int] | None: ...
    def payload(self, nbytes: int, /) -> memoryview: ...
    def advance(self, nbytes: int, /) -> None: ...
    def take(self, first: int, dtype: int, room: memoryview, /) -> int: ...
    def close(self) -> None: ...

class MessagePeer(Protocol):
    """One rank: how errors call it, the process whose memory may be read or 0, and what leads there if rings do."""

    @property
    def name(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def rings(self) -> Any: ...
    @property
    def pipe(self) -> Any: ...
    @property
    def peer(self) -> Any: ...
    @property
    def window(self) -> Any: ...

class MessageHooks(Protocol):
    """What compiled messages look at, and what they leave to Python."""

    turn: Any
    engine: Any
    failure_state: Any
    progress_lock: Any
    deferred: Any
    arrivals: Any
    receives: Any
    offered: Any
    most_tag: int
    raw: int
    window_nbytes: int
    message_nbytes: int

    # Of the engine's lock, the progress lock, and what has been left to be done without the lock.
    def locked(self) -> bool: ...
    lock: Callable[..., bool]
    def unlock(self) -> None: ...
    def stand_up(self) -> None: ...
    def settle(self) -> None: ...

    # Of messages; a request stands for one that goes on.
    def mark(self, dtype: Any, /) -> int: ...
    def register_offer(self, array: Any, to: int, tag: int, /) -> tuple[Any, int]: ...
    def offer(self, request: Any, ident: int, to: int, /) -> None: ...
    def ask_for(self, array: Any, source: int, tag: int, offer: tuple[int, int, int], /) -> Any: ...
    def answer(self, source: int, ident: int, /) -> None: ...
    def copied(self, nbytes: int, /) -> None: ...
    def go_on_sending(self, array: Any, to: int, tag: int, sent: int, /) -> Any: ...
    def go_on_receiving(self, array: Any, source: int, tag: int, length: int, filled: int, /) -> Any: ...
    def finish(self, request: Any, verb: str, peer: int, /) -> None: ...
    def receive(self, array: Any, source: int, tag: int, /) -> None: ...
    def taken(self, source: int, nbytes: int, /) -> None: ...

class Messages:
    def __init__(self, trail: Trail, peers: Sequence[MessagePeer], hooks: MessageHooks, may_spin: bool, /) -> None: ...
    def send(self, array: Any, dst: Any, tag: Any, /) -> bool: ...
    def recv(self, array: Any, src: Any, tag: Any, /) -> int | None: ...

class WireLink(Protocol):
    """One rank: how errors and the engine call it, what leads there, and where what comes from it goes."""

    @property
    def name(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def peer(self) -> Any: ...
    @property
    def window(self) -> Any: ...
    @property
    def room(self) -> memoryview: ...

class WireHooks(Protocol):
    """What a compiled wire looks at, and what it leaves to Python; requests stand for what goes on."""

    turn: Any
    engine: Any
    failure_state: Any
    progress_lock: Any
    deferred: Any
    arrivals: Any
    receives: Any
    lines: Any
    most_tag: int
    window_nbytes: int
    message_nbytes: int
    descriptor: int  # what can be read when there is anything to do for the engine, or -1

    # Of the engine's lock, the progress lock, and what has been left to be done without the lock.
    lock: Callable[..., bool]
    def unlock(self) -> None: ...
    def stand_up(self) -> None: ...
    def settle(self) -> None: ...

    # With the lock held.
    def keep(self, to: int, rest: bytes, tag: int, /) -> Any: ...
    def feed(self, source: int, data: bytes, /) -> None: ...
    def taken(self, source: int, nbytes: int, /) -> None: ...

    # Without it.
    def mark(self, dtype: Any, /) -> int: ...
    def finish(self, given: Any, record: bytes, state: list[tuple[int, Any, bool, Any]], /) -> list[int]: ...
    def stream(
        self,
        given: Any,
        source: Any,
        array: Any,
        peer: int,
        tag: int,
        out: tuple[int, int] | None,
        into: tuple[int, int] | None,
        aside: bool,
        rest: Any,
        /,
    ) -> Any: ...
    def exchange(
        self,
        given: Any,
        sent: Any,
        taken: Any,
        op: str | None,
        dtype: Any,
        begin: int,
        end: int,
        lanes: list[tuple[int, bool, bool, int, Any]],
        /,
    ) -> Any: ...
    def finish_message(self, request: Any, peer: int, /) -> None: ...
    def receive(self, array: Any, source: int, tag: int, /) -> None: ...

class Wire:
    waited_ns: int
    def __init__(self, rank: int, links: Sequence[WireLink | None], hooks: WireHooks, spin_ns: int, /) -> None: ...
    def serve(self, trail: Trail, /) -> None: ...
    def reduce(self, array: Any, op: str, deadline: Any, /) -> bool: ...
    def exchange(
        self, sent: tuple[Any, ...], taken: tuple[Any, ...], op: str | None, nbytes: int, deadline: Any, /
    ) -> bool: ...
    def send(self, array: Any, dst: Any, tag: Any, /) -> bool: ...
    def recv(self, array: Any, src: Any, tag: Any, /) -> int | None: ...

class Program: ...

class Relay:
    waited_ns: int
    def __init__(
        self,
        board: Any,
        wire: Wire | None,
        turn: Any,
        sequence: Iterator[int],
        gather: tuple[int, ...],
        spread: tuple[int, ...],
        hosts: list[list[int]],
        rank: int,
        along_nbytes: int,
        /,
    ) -> None: ...

class Tls:
    def __init__(self, owner: object, address: int, fd: int, functions: Mapping[str, int], /) -> None: ...
    def shake(self) -> bool: ...
    def send(self, parts: Sequence[bytes | memoryview], /) -> int: ...
    def receive(self, rooms: Sequence[bytearray | memoryview], /) -> int: ...
    def holds(self) -> bool: ...

def blake2b(text: bytes, key: bytes, /) -> bytes: ...
def fence() -> None: ...
