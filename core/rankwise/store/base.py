"""`Store`: what every kind of store offers, and the three methods that a new kind must bring."""

from __future__ import annotations

import contextlib
import copy
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.entry_points import part
from rankwise.basics.tracebacks import shorten, shortened
from rankwise.errors import DistError, DistStoreError, DistTimeoutError, QueueEmptyError
from rankwise.store import operations
from rankwise.store.primitives import (
    MAX_VALUE_NBYTES,
    Missing,
    Primitives,
    Series,
    to_amount,
    to_key,
    to_keys,
    to_value,
)

if TYPE_CHECKING:
    from rankwise.basics.secrecy import Secret

DEFAULT_TIMEOUT_S = 300.0

#: By how much a call may outlast its time-out where something other than the waiting is slow.
GRACE_S = 0.08

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.0001, 0.02

Value = str | bytes | bytearray | memoryview

_Self = TypeVar("_Self", bound="Store")
_R = TypeVar("_R")
_P = ParamSpec("_P")

Operation = Callable[Concatenate[Primitives, _P], _R]


def late(store: object, operation: Callable[..., Any], timeout_s: float, lacking: str) -> DistTimeoutError:
    """Make the error of an operation whose time is up."""
    return DistTimeoutError(f"{operations.title(operation)} on {store!r}: waited {in_words(timeout_s)} for {lacking}")


def in_words(timeout_s: float) -> str:
    """Return a time-out as users know it: what is left of it when the waiting begins may be a little less."""
    return f"{timeout_s:.2g} s" if timeout_s < 1 else f"{round(timeout_s, 2):g} s"


class ArrivalPoint(NamedTuple):
    """Where ranks meet.

    Attributes:
        counter: The key of the number of those that have come.
        said: The key of what is said there.
        size: How many must come.
        forget: The beginnings of keys that nobody needs any more once all have come.
    """

    counter: str
    said: str
    size: int
    forget: tuple[str, ...] = ()


#: What is said at a place where all have come, and what else was asked for.
Arrival = tuple[bytes, list[bytes | None]]


class Store(ABC):
    """Keys and values that the processes of a job share, to find each other by.

    Keys are text of at most 8 KiB, values bytes of at most 8 MiB. Any thread may call. An operation that waits does so
    for `timeout`, or else for the store's own time-out, and then raises `DistTimeoutError`, which names the keys.
    Queues and barriers come with `rankwise-stores`.

    A new kind of store implements `peek`, `swap` and `scan`. All else is derived from these by looking again and again;
    a kind that can do better overrides `_run` (one operation that does not wait) and `_await` (one that waits).
    """

    #: The job secret of a store that guards itself by one.
    secret: Secret | None = None
    #: Whether what it holds is gone once no process has it open.
    ends_with_its_users = False
    #: Whether others keep it, as the launcher may, so that it is there after the groups that meet in it.
    is_lent = False
    #: Whether a request may be about many keys; else each takes one of its own.
    takes_many_keys = True
    #: Whether its `repr` says where it is, which no other store's does.
    has_address = False

    _timeout_s = DEFAULT_TIMEOUT_S
    _closed = False

    # ------------------------------------------------------------------ what a kind of store must implement

    @abstractmethod
    def peek(self, key: str) -> bytes | None:
        """Return the value that is stored now; must not wait for one.

        Args:
            key: The key.

        Returns:
            The value, or None if there is none.

        Examples:
            >>> dist.HashStore().peek("key") is None
            True
        """

    @abstractmethod
    def swap(self, key: str, expected: bytes | None, desired: bytes | None) -> bytes | None:
        """Replace a value if it is the expected one, in one indivisible step.

        None stands for an absent key: expected, it creates one; desired, it deletes one. If what was found is
        not `expected`, nothing is changed.

        Args:
            key: The key.
            expected: What has to be there.
            desired: What takes its place.

        Returns:
            What was found.

        Examples:
            >>> store = dist.HashStore()
            >>> store.swap("key", None, b"new") is None
            True
            >>> store.swap("key", b"other", b"newer")
            b'new'
        """

    @abstractmethod
    def scan(self) -> Sequence[str]:
        """Return all keys, those that begin with a null character (they are the store's own) included.

        Returns:
            The keys.

        Examples:
            >>> store = dist.HashStore()
            >>> store.set("key", "value")
            >>> store.scan()
            ['key']
        """

    # ------------------------------------------------------------------ one key

    def set(self, key: str, value: Value) -> None:
        """Store a value under a key, whatever was there.

        Args:
            key: The key.
            value: The value; text is stored as UTF-8.

        Raises:
            ValueError: Key or value is too large.
            DistStoreError: The store has been closed.

        Examples:
            >>> store = dist.HashStore()
            >>> store.set("key", "value")
            >>> store.get("key")
            b'value'
        """
        with shortened:
            self._run(operations.set_, self._timeout_s, to_key(key), to_value(value))

    def get(self, key: str, timeout: Timeout | None = None) -> bytes:
        """Return the value of a key; wait for it if it is not there.

        Args:
            key: The key.
            timeout: How long to wait, in seconds or as a `timedelta`; None is the store's time-out.

        Returns:
            The value.

        Raises:
            DistTimeoutError: No process has set it in time.

        Examples:
            >>> store = dist.HashStore()
            >>> store.get("key", timeout=0.01)
            Traceback (most recent call last):
            rankwise.errors.DistTimeoutError: timed out: get on HashStore(): ...
        """
        with shortened:
            return self._await(operations.get, self._limit(timeout), to_key(key))

    def add(self, key: str, amount: int) -> int:
        """Add to the number under a key, which is zero if it is not there.

        Args:
            key: The key.
            amount: What to add, which may be negative.

        Returns:
            The sum.

        Raises:
            DistStoreError: The value is not an integer in decimal digits, or would need more than 64 bits.

        Examples:
            >>> store = dist.HashStore()
            >>> store.add("count", 2), store.add("count", -1)
            (2, 1)
        """
        with shortened:
            return self._run(operations.add, self._timeout_s, to_key(key), to_amount(amount))

    def compare_set(self, key: str, expected: Value, desired: Value) -> bytes:
        """Store `desired` if `expected` is there.

        An empty `expected` means "only if the key is not there" (or is empty). If the key is not there and something
        else was expected, nothing is stored and `b""` is returned.

        Args:
            key: The key.
            expected: What has to be there.
            desired: What takes its place.

        Returns:
            The value that is there afterwards.

        Examples:
            >>> store = dist.HashStore()
            >>> store.compare_set("leader", "", "rank 0")
            b'rank 0'
            >>> store.compare_set("leader", "", "rank 1")
            b'rank 0'
        """
        with shortened:
            named, old, new = to_key(key), to_value(expected), to_value(desired)
            return self._run(operations.compare_set, self._timeout_s, named, old, new)

    def append(self, key: str, value: Value) -> None:
        """Store a value behind the one that is there, if any.

        Args:
            key: The key.
            value: What to add.

        Raises:
            DistStoreError: Both together are too large.

        Examples:
            >>> store = dist.HashStore()
            >>> store.append("log", "a")
            >>> store.append("log", "b")
            >>> store.get("log")
            b'ab'
        """
        with shortened:
            self._run(operations.append, self._timeout_s, to_key(key), to_value(value))

    def delete_key(self, key: str) -> bool:
        """Remove a key.

        Args:
            key: The key.

        Returns:
            Whether it was there.

        Examples:
            >>> store = dist.HashStore()
            >>> store.delete_key("key")
            False
        """
        with shortened:
            return self._run(operations.delete_key, self._timeout_s, to_key(key))

    # ------------------------------------------------------------------ several keys

    def check(self, keys: Iterable[str]) -> bool:
        """Tell whether all the keys are there; never waits.

        Args:
            keys: The keys.

        Returns:
            Whether they are.

        Examples:
            >>> store = dist.HashStore()
            >>> store.check(["key"])
            False
        """
        with shortened:
            return self._run(operations.check, self._timeout_s, to_keys(keys))

    def wait(self, keys: Iterable[str], timeout: Timeout | None = None) -> None:
        """Return once all the keys are there.

        Args:
            keys: The keys.
            timeout: How long to wait, in seconds or as a `timedelta`; None is the store's time-out.

        Raises:
            DistTimeoutError: Some are not; they are named.

        Examples:
            >>> store = dist.HashStore()
            >>> store.set("key", "value")
            >>> store.wait(["key"], timeout=1)
        """
        with shortened:
            self._await(operations.wait, self._limit(timeout), to_keys(keys))

    def multi_get(self, keys: Iterable[str], timeout: Timeout | None = None) -> list[bytes]:
        """Return the values of several keys; wait for those that are not there.

        Args:
            keys: The keys.
            timeout: How long to wait, in seconds or as a `timedelta`; None is the store's time-out.

        Returns:
            The values, in the order of the keys.

        Raises:
            DistTimeoutError: Some are not there; they are named.

        Examples:
            >>> store = dist.HashStore()
            >>> store.multi_set(["a", "b"], ["1", "2"])
            >>> store.multi_get(["b", "a"])
            [b'2', b'1']
        """
        with shortened:
            names, values = to_keys(keys), list[bytes]()
            deadline = Deadline(self._limit(timeout))
            while len(values) < len(names):
                values += self._await(operations.multi_get, deadline.remaining(), names[len(values) :])
            return values

    def multi_set(self, keys: Iterable[str], values: Iterable[Value]) -> None:
        """Store several values, the first under the first key, and so on.

        Args:
            keys: The keys.
            values: As many values.

        Raises:
            ValueError: There are not as many values as keys.

        Examples:
            >>> store = dist.HashStore()
            >>> store.multi_set(["a", "b"], ["1", "2"])
            >>> store.get("b")
            b'2'
        """
        with shortened:
            names, contents = to_keys(keys), [to_value(value) for value in values]
            if len(names) != len(contents):
                raise ValueError(f"multi_set: {len(names)} keys but {len(contents)} values")
            begin, nbytes = 0, 0
            for end, value in enumerate(contents):
                nbytes += len(value)
                if nbytes > MAX_VALUE_NBYTES and end > begin:
                    self._run(operations.multi_set, self._timeout_s, names[begin:end], contents[begin:end])
                    begin, nbytes = end, len(value)
            self._run(operations.multi_set, self._timeout_s, names[begin:], contents[begin:])

    def num_keys(self) -> int:
        """Count the keys that were set and not deleted; the store's own do not count.

        Returns:
            Their number.

        Examples:
            >>> store = dist.HashStore()
            >>> store.set("key", "value")
            >>> store.num_keys()
            1
        """
        with shortened:
            return self._run(operations.num_keys, self._timeout_s)

    def num_refused(self) -> int:
        """Count the attempts to use the store that were refused, as their job secret is another.

        Returns:
            The number; 0 if the kind of store does not count them.

        Examples:
            >>> dist.HashStore().num_refused()
            0
        """
        with shortened:
            return self._run(operations.num_refused, self._timeout_s)

    def list_keys(self) -> list[str]:
        """Return the keys that were set and not deleted, in order.

        Returns:
            The keys.

        Examples:
            >>> store = dist.HashStore()
            >>> store.multi_set(["b", "a"], ["2", "1"])
            >>> store.list_keys()
            ['a', 'b']
        """
        with shortened:
            keys, complete = list[str](), False
            while not complete:
                page, complete = self._run(operations.list_keys, self._timeout_s, keys[-1] if keys else "")
                keys += page
            return keys

    def delete_prefix(self, prefix: str) -> int:
        """Remove all keys, queues and barriers whose names begin with a prefix.

        Args:
            prefix: What the names begin with.

        Returns:
            How many keys these were.

        Examples:
            >>> store = dist.HashStore()
            >>> store.multi_set(["job/a", "job/b", "other"], ["1", "2", "3"])
            >>> store.delete_prefix("job/")
            2
        """
        with shortened:
            return self._run(operations.delete_prefix, self._timeout_s, to_key(prefix))

    # ------------------------------------------------------------------ queues and barriers

    def queue_push(self, key: str, value: Value) -> None:
        """Put a value at the end of a queue; names of queues and keys are independent.

        Args:
            key: The queue's name.
            value: The value.

        Raises:
            DistStoreError: All its items together would be larger than a value may be.

        Examples:
            >>> store = dist.HashStore()
            >>> store.queue_push("jobs", "first")
            >>> store.queue_pop("jobs")
            b'first'
        """
        with shortened:
            self._run(_queues().queue_push, self._timeout_s, to_key(key), to_value(value))

    def queue_pop(self, key: str, block: bool = True, timeout: Timeout | None = None) -> bytes:
        """Take the first value of a queue.

        It leaves the queue when this call has confirmed that it is there: one that fails, is interrupted or is killed
        before, leaves the value where it was.

        Args:
            key: The queue's name.
            block: Wait for a value if the queue is empty.
            timeout: How long to wait, in seconds or as a `timedelta`; None is the store's time-out.

        Returns:
            The value.

        Raises:
            QueueEmptyError: The queue is empty, and `block` is false.
            DistTimeoutError: It has stayed empty.

        Examples:
            >>> store = dist.HashStore()
            >>> store.queue_pop("jobs", block=False)
            Traceback (most recent call last):
            rankwise.errors.QueueEmptyError: queue_pop on HashStore(): queue 'jobs' is empty
        """
        try:
            queues, queue, token, item = _queues(), "", b"", None
            try:
                queue, deadline = to_key(key), Deadline(self._limit(timeout))
                while True:
                    token, item = os.urandom(queues.TOKEN_NBYTES), None
                    item = self._first_item(queue, token, block, deadline)
                    if self._run(queues.queue_confirm, deadline.remaining() + GRACE_S, queue, token):
                        return item
            except QueueEmptyError:
                raise
            except BaseException:  # an interrupt too, wherever it came
                if token:
                    with contextlib.suppress(DistError):
                        self._run(queues.queue_release, GRACE_S, queue, token, item)
                raise
        except BaseException as error:
            shorten(error)
            raise

    def _first_item(self, queue: str, token: bytes, block: bool, deadline: Deadline) -> bytes:
        """Have the first item of a queue lent to the token."""
        queues = _queues()
        if block:
            return self._await(queues.queue_pop, deadline.remaining(), queue, token)  # type: ignore[no-any-return]
        args: tuple[Any, ...] = queue, token
        while True:
            item = self._run(queues.queue_pop, self._timeout_s, *args)
            if not isinstance(item, Missing):
                return item  # type: ignore[no-any-return]
            if not self._run(queues.queue_len, self._timeout_s, queue):
                break
            args = item.args or args  # all items are lent, and may come back
            time.sleep(_SHORTEST_PAUSE_S)
        raise QueueEmptyError(f"queue_pop on {self!r}: queue {queue!r} is empty")

    def queue_len(self, key: str) -> int:
        """Count the values in a queue.

        Args:
            key: The queue's name.

        Returns:
            Their number.

        Examples:
            >>> store = dist.HashStore()
            >>> store.queue_len("jobs")
            0
        """
        with shortened:
            return self._run(_queues().queue_len, self._timeout_s, to_key(key))  # type: ignore[no-any-return]

    def barrier(self, key: str, world_size: int, timeout: Timeout | None = None) -> None:
        """Return once `world_size` callers have come to the barrier of that name, which can be used again and again.

        A caller whose time is up has not come: the barrier is as it was before.

        Args:
            key: The barrier's name.
            world_size: How many have to come.
            timeout: How long to wait, in seconds or as a `timedelta`; None is the store's time-out.

        Raises:
            ValueError: `world_size` is less than one.
            DistStoreError: Another caller has given another `world_size`.
            DistTimeoutError: Not all have come; the message says how many.

        Examples:
            >>> dist.HashStore().barrier("ready", world_size=1)
        """
        with shortened:
            size = to_amount(world_size)
            if size < 1:
                raise ValueError(f"barrier: world_size must be at least 1, not {size}")
            self._await(_queues().barrier, self._limit(timeout), to_key(key), size)

    # ------------------------------------------------------------------ time-out, copies, end

    @property
    def timeout(self) -> timedelta:
        """How long operations wait unless told otherwise."""
        return timedelta(seconds=self._timeout_s)

    def set_timeout(self, timeout: Timeout) -> None:
        """Set how long operations wait unless told otherwise.

        Args:
            timeout: Seconds, or a `timedelta`.

        Examples:
            >>> store = dist.HashStore()
            >>> store.set_timeout(5)
            >>> store.timeout
            datetime.timedelta(seconds=5)
        """
        with shortened:
            self._timeout_s = seconds(timeout)

    def clone(self: _Self) -> _Self:
        """Return another store with the same content and a time-out of its own.

        Returns:
            The store, which has to be closed for itself.

        Examples:
            >>> store = dist.HashStore()
            >>> store.set("key", "value")
            >>> store.clone().get("key")
            b'value'
        """
        return copy.copy(self)

    def view(self: _Self, timeout: Timeout) -> _Self:
        """Return the same store with another time-out; it ends with this one.

        Args:
            timeout: Seconds, or a `timedelta`.

        Returns:
            The store.

        Examples:
            >>> store = dist.HashStore()
            >>> store.view(timeout=5).timeout
            datetime.timedelta(seconds=5)
        """
        twin = copy.copy(self)
        twin.set_timeout(timeout)
        return twin

    def among(self: _Self, ranks: Sequence[int]) -> _Self:
        """Return the store by which some ranks of the job make a group: this one, or another that they reach better.

        Args:
            ranks: Their global ranks.

        Returns:
            The store; it ends with this one.

        Examples:
            >>> store = dist.HashStore()
            >>> store.among([1, 2]) is store
            True
        """
        return self

    def _have_met(self) -> None:  # noqa: B027 - most kinds of store keep nothing for it
        """Be told that all who meet here have come; what only the beginning has needed can be given back."""

    def close(self) -> None:
        """Give back what the store holds; calling again does nothing. Other operations fail from now on.

        Examples:
            >>> store = dist.HashStore()
            >>> store.close()
            >>> store.set("key", "value")
            Traceback (most recent call last):
            rankwise.errors.DistStoreError: set on HashStore(): the store has been closed
        """
        self._closed = True

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    # ------------------------------------------------------------------ how operations run

    def _run(self, operation: Operation[_P, _R], limit_s: float, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Carry out an operation that does not wait, or fail within `limit_s`."""
        self._check_open(operation)
        return operation(self, *args, **kwargs)

    def _set_and_peek(self, values: Mapping[str, bytes], keys: Sequence[str]) -> list[bytes | None]:
        """Store values and return what others hold now, in one request."""
        mine = list(values), list(values.values())
        found: list[bytes | None] = self._run(operations.set_and_peek, self._timeout_s, *mine, list(keys))
        while len(found) < len(keys):
            found.append(self.peek(keys[len(found)]))
        return found

    def _claim(self, keys: Sequence[str], values: Sequence[bytes]) -> list[bytes]:
        """Store each value where nothing is, and return what is there afterwards, in one request."""
        return self._run(operations.claim, self._timeout_s, list(keys), list(values))

    def _arrive(self, values: Mapping[str, bytes], at: ArrivalPoint, wanted: Series, timeout: Timeout) -> Arrival:
        """Store values, be counted at a place, and return once something is said there; all in one request.

        Returns:
            What is said, `operations.FINE` if all have come; and what is under the wanted keys then.
        """
        mine = list(values), list(values.values()), at.counter, at.size, at.said, list(at.forget)
        said, *found = self._await(operations.arrive, seconds(timeout), *mine, wanted.prefix, wanted.length)
        while len(found) < len(wanted):
            found.append(self.peek(wanted[len(found)]))
        assert said is not None  # it has been waited for
        return said, found

    def _await(
        self, operation: Operation[_P, _R | Missing], timeout_s: float, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        """Carry out an operation again and again until it returns something.

        Raises:
            DistTimeoutError: It has not, for `timeout_s`.
        """
        deadline, pause_s = Deadline(timeout_s), _SHORTEST_PAUSE_S
        step: tuple[Callable[..., _R | Missing], tuple[Any, ...]] = operation, args
        try:
            while True:
                found = self._run(step[0], deadline.remaining() + GRACE_S, *step[1])
                if not isinstance(found, Missing):
                    return found
                if found.operation is not None:
                    step = found.operation, found.args
                if deadline.expired():
                    break
                self._pause(pause_s, deadline.remaining())
                pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
        except BaseException:
            with contextlib.suppress(DistError):
                self._give_up(*step)
            raise
        lacking = self._run(operations.LACKING[step[0]], GRACE_S, *step[1])
        last = self._give_up(*step)
        if last is None or isinstance(last, Missing):
            raise late(self, operation, timeout_s, lacking)
        return last  # type: ignore[no-any-return]

    def _pause(self, pause_s: float, remaining_s: float) -> None:
        """Wait before looking again: `pause_s`, or until something has changed, and never beyond `remaining_s`."""
        time.sleep(min(pause_s, remaining_s))

    def _give_up(self, operation: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Take back the traces of an operation that has waited in vain; return its result if it came just now."""
        leave = operations.GIVE_UP.get(operation)
        return None if leave is None else self._run(leave, GRACE_S, *args)

    def _limit(self, timeout: Timeout | None) -> float:
        return self._timeout_s if timeout is None else seconds(timeout)

    def _check_open(self, operation: Callable[..., Any]) -> None:
        if self._closed:
            raise DistStoreError(f"{operations.title(operation)} on {self!r}: the store has been closed")


def _queues() -> Any:
    """Return the operations on queues and barriers, which few programs use."""
    return part("queues", "rankwise-stores")


class TableStore(Store):
    """A kind whose `_run` does whole operations on a table that it keeps: then its three methods are operations too."""

    def peek(self, key: str) -> bytes | None:
        return self._run(operations.peek, self._timeout_s, key)

    def swap(self, key: str, expected: bytes | None, desired: bytes | None) -> bytes | None:
        return self._run(operations.swap, self._timeout_s, key, expected, desired)

    def scan(self) -> Sequence[str]:
        return self._run(operations.scan, self._timeout_s)
