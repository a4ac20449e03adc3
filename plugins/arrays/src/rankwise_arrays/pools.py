"""Tasks for whichever rank is free: one rank leads, the others work.

The leader sends tasks to a worker that waits for some, and receives from any that has ended its own; so no two ranks
wait for each other to receive. When all is done it says so, and all meet in a barrier: as that ends on all ranks or on
none, they agree whether there is still somebody to wait for. Of tasks so short that messages would take longer, it
sends several at a time; a worker that meets a longer one among them gives the rest back.

The death of a worker ends the group for all that are left. They make a group of their own, and each worker says again
what it said last, since the leader may not have heard it. What the leader has sent and no worker knows of, it sends
once more.
"""

from __future__ import annotations

import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import rankwise as dist
from rankwise.errors import DistError, PeerDiedError, UnsupportedOperationError
from rankwise_arrays.kinds import Group, is_member
from rankwise_arrays.messages import tag_for
from rankwise_arrays.packets import Box, Packet, empty_box, opened, packed, rest_of

_TAG = 100
#: What is said: tasks and the end by the leader, what has become of tasks by a worker.
_TASKS, _END, _DONE = range(3)
_NO_TASK = -1
#: How long the tasks that are sent at a time should take.
_AT_ONCE_S = 0.0002
#: After so long a worker gives back those of them that it has not begun.
_LONGEST_S = 0.001

#: The results of tasks, the traceback of the one behind them if that has failed, and how long they have taken.
Outcome = tuple[list[Any], str | None, float]


class Task(NamedTuple):
    """A task, and its place among all."""

    number: int
    value: Any


class TaskError(DistError):
    """A task of a pool has failed; the message ends with the traceback of the rank that it has failed on.

    Attributes:
        number: Its place among the tasks, from 0.
        rank: The global rank that it has failed on.
    """

    def __init__(self, number: int, rank: int, why: str) -> None:
        super().__init__(number, rank, why)
        self.number, self.rank = number, rank

    def __str__(self) -> str:
        return f"task {self.number} has failed on rank {self.rank}: {self.args[2]}"


def pool(group: Group = None, *, attempts: int = 3, chunksize: int = 64, pickle: bool = False) -> Pool:
    """Return a pool of the ranks of a group: rank 0 of the group leads, the others work.

    Args:
        group: The group; None is the default group.
        attempts: How many workers may die of one task; with the last of them the task counts as failed. Where a worker
            had several short ones, none of them counts as failed for that death alone.
        chunksize: How many tasks a worker gets at a time at the most, where they take microseconds.
        pickle: Send tasks and results of any type, as pickles.

    Returns:
        The pool, to be used in a `with` block.

    Raises:
        ValueError: This rank is not in the group, or `attempts` or `chunksize` is less than 1.

    Examples:
        >>> with dist.pool() as pool:
        ...     squares = sorted(pool.map_unordered(lambda task: task**2, range(4)))
        >>> squares if rank == 0 else [0, 1, 4, 9]  # the leader alone gets them
        [0, 1, 4, 9]
    """
    if not is_member(group):
        raise ValueError("pool: this rank is not in the group")
    if attempts < 1:
        raise ValueError(f"pool: {attempts} attempts; each task needs one")
    if chunksize < 1:
        raise ValueError(f"pool: a chunksize of {chunksize}; it must be 1 at least")
    return Pool(group, attempts, chunksize, pickle)


class Pool:
    """Ranks that work on tasks; see `pool`.

    Attributes:
        leads: Whether this rank is the one that gives out tasks and gets their results.
        done: How many tasks of the last call have been done, for the leader.
        lost: The global ranks of workers that have died.
        group: The ranks that are left; another group than before once a worker has died.
    """

    def __init__(self, group: Group, attempts: int, chunksize: int, pickle: bool) -> None:
        self.group, self.done, self.lost = group, 0, list[int]()
        self._ranks, self._tag = dist.get_process_group_ranks(group), tag_for(group, _TAG)
        self._leader = self._ranks[0]
        self.leads = dist.get_rank() == self._leader
        self._attempts, self._chunksize, self._pickle = attempts, chunksize, pickle
        self._running: Generator[Any, None, None] | None = None

    def __repr__(self) -> str:
        role = "leads" if self.leads else "works"
        return f"<Pool of {len(self._ranks) - 1} workers; rank {dist.get_rank()} {role}>"

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        """Have the workers leave a call whose results the leader has not all taken."""
        if self._running is not None:
            self._running.close()

    def map_unordered(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        """Yield what a function makes of tasks, as it comes, to the leader; the others yield nothing, and work.

        All ranks call, with the same function, which does not travel; and all go through what is returned. A task is
        taken from `tasks` when a worker is free for it, so these may be without end, and results wait with their
        workers until the leader takes them. Of tasks that take microseconds a worker gets several at a time, and gives
        back those behind one that takes longer. If a worker dies, its task is given to another one, once all workers
        have ended those that they are at. A leader without workers works.

        Args:
            function: Makes a result of a task.
            tasks: The tasks; only the leader's count.

        Yields:
            The results.

        Raises:
            TaskError: A task has failed; those that were begun have been waited for.
            PeerDiedError: All workers have died, or for a worker the leader.
            ValueError: The results of an earlier call have not all been taken.
        """
        for _, result in self._mapped(function, tasks):
            yield result

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        """Yield the same in the order of tasks; see `map_unordered`.

        Args:
            function: Makes a result of a task.
            tasks: The tasks; only the leader's count.

        Yields:
            The results.
        """
        early: dict[int, Any] = {}
        due = 0
        for number, result in self._mapped(function, tasks):
            early[number] = result
            while due in early:
                yield early.pop(due)
                due += 1

    def _mapped(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterable[tuple[int, Any]]:
        if not self.leads:
            self._work(function)
            return ()
        if self._running is not None:
            raise ValueError("map: the results of an earlier call have not all been taken")
        self.done = 0
        self._running = self._led(function, tasks)
        return self._running

    def _led(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Generator[tuple[int, Any], None, None]:
        run = _Run(self, tasks, self._attempts, self._chunksize)
        try:
            for number, result in run.results() if self.workers else self._alone(function, tasks):
                self.done += 1
                yield number, result
        finally:
            self._running = None
            if not run.is_cut_off:
                run.end()

    def _alone(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        for number, task in enumerate(tasks):
            results, failure, _ = _done(function, [task])
            if failure is not None:
                raise TaskError(number, dist.get_rank(), failure)
            yield number, results[0]

    def _work(self, function: Callable[[Any], Any]) -> None:
        """Work until the leader says that all is done."""
        last, is_told = self.pack(Packet(_DONE, _NO_TASK, None)), True
        while True:
            try:
                if not is_told:
                    self.say(self._leader, last)
                given = self.hear(self._leader)[1]
                if given.word == _END:
                    dist.barrier(self.group)
                    return
            except PeerDiedError as error:
                self.go_on_without(error)
            else:
                last = self._outcome(function, given)
            is_told = False

    def _outcome(self, function: Callable[[Any], Any], given: Packet) -> Box:
        """Return what to say of tasks; of one whose result does not travel, that it has failed."""
        outcome = _done(function, given.value)
        try:
            return self.pack(Packet(_DONE, given.number, outcome))
        except Exception:  # of whatever class a pickle is about
            return self.pack(Packet(_DONE, given.number, self._that_travels(outcome)))

    def _that_travels(self, outcome: Outcome) -> Outcome:
        """Return an outcome as if the first task whose result does not travel had failed of that."""
        results, failure, took_s = outcome
        for place, result in enumerate(results):
            try:
                self.pack(Packet(_DONE, _NO_TASK, result))
            except Exception:
                return results[:place], traceback.format_exc(), took_s
        return results, failure, took_s

    # ------------------------------------------------------------------ messages

    @property
    def workers(self) -> list[int]:
        """The global ranks of the workers that are left."""
        return [rank for rank in self._ranks if rank != self._leader]

    def pack(self, packet: Packet) -> Box:
        """Return a packet as it is sent."""
        return packed(packet, self._pickle)

    def say(self, rank: int, box: Box) -> None:
        """Send a rank a packet."""
        for part in box:
            if part is not None:
                dist.send(part, rank, self.group, self._tag)

    def hear(self, rank: int | None) -> tuple[int, Packet, bool]:
        """Receive a packet, of any rank if none is given; return who has sent it, too, and whether it fits in a box."""
        box = empty_box()
        sender = dist.recv(box, rank, self.group, self._tag)
        rest = rest_of(box)
        if rest is not None:
            dist.recv(rest, sender, self.group, self._tag)
        return sender, opened(box, rest, self._pickle), rest is None

    def go_on_without(self, error: PeerDiedError) -> None:
        """Make a group of those that are left.

        Raises:
            PeerDiedError: The leader has died, or the backend cannot make such a group.
        """
        if error.rank == self._leader:
            raise error
        try:
            self.group = dist.shrink_group([error.rank], self.group, dist.SHRINK_ABORT)
        except UnsupportedOperationError:
            raise error from None
        left = dist.get_process_group_ranks(self.group)
        self.lost += [rank for rank in self._ranks if rank not in left]
        self._ranks, self._tag = left, tag_for(self.group, _TAG)
        if self._leader in self.lost:
            raise PeerDiedError(self._leader, error.host, "it led the pool, and has died after a worker") from error


class _Run:
    """The leader's part of one call: who has which task, and which are still to be given.

    Attributes:
        is_cut_off: Whether a message has failed, other than by the death of a worker.
    """

    def __init__(self, pool: Pool, tasks: Iterable[Any], attempts: int, chunksize: int) -> None:
        self._pool, self._fresh, self._attempts = pool, enumerate(tasks), attempts
        self._again: deque[Task] = deque()
        self._deaths: Counter[int] = Counter()
        self._idle = deque(pool.workers)
        #: What each worker that is to say something has to do; nothing if only to say that it is there.
        self._busy: dict[int, list[Task]] = {}
        self._at_once, self._most_at_once = 1, chunksize
        self._failure: DistError | None = None
        self.is_cut_off = False

    def results(self) -> Iterator[tuple[int, Any]]:
        """Yield numbers of tasks and their results, as they come."""
        self._give_tasks()
        while self._busy:
            results = self._heard()
            if self._failure is None:
                self._give_tasks()  # before the program takes its time with the results
            yield from results
            if self._failure is not None:
                raise self._failure

    def end(self) -> None:
        """Have all workers leave; what they have begun is waited for, and not looked at."""
        while True:
            while self._busy:
                self._heard()
            if self._tried(self._say_end):
                return

    def _say_end(self) -> None:
        for worker in self._idle:
            self._pool.say(worker, self._pool.pack(Packet(_END, _NO_TASK, None)))
        if self._idle:
            dist.barrier(self._pool.group)

    def _give_tasks(self) -> None:
        """Give tasks to those that are free.

        Raises:
            TaskError: One has failed.
            PeerDiedError: There are tasks, and nobody to work on them.
        """
        while self._failure is None and self._idle and (tasks := self._next_tasks()):
            box = self._pool.pack(Packet(_TASKS, tasks[0].number, [task.value for task in tasks]))
            self._busy[self._idle[0]] = tasks
            if box[1] is not None:
                self._at_once = 1  # to send what is long takes long, too
            if self._tried(partial(self._pool.say, self._idle[0], box)):
                self._idle.popleft()
        if self._failure is not None:
            raise self._failure

    def _next_tasks(self) -> list[Task]:
        """Take as many tasks as a worker gets at a time, or as come in the time that they are to take."""
        if self._again:
            return [self._again.popleft()]  # alone: it may have killed who had it
        tasks: list[Task] = []
        until = perf_counter() + _AT_ONCE_S
        for fresh in self._fresh:
            tasks.append(Task(*fresh))
            if len(tasks) >= self._at_once or perf_counter() > until:
                break
        return tasks

    def _heard(self) -> list[tuple[int, Any]]:
        """Wait for a worker to say something, and return its results with the numbers of their tasks."""
        heard: list[tuple[int, Packet, bool]] = []
        if not self._tried(lambda: heard.append(self._pool.hear(None))):
            return []
        worker, said, is_brief = heard[0]
        tasks = self._busy.pop(worker)
        self._idle.append(worker)
        if not tasks:
            return []
        if tasks[0].number != said.number:  # it has never got them
            self._again.extend(tasks)
            return []
        results, failure, took_s = said.value
        if failure is not None:
            self._failure = self._failure or TaskError(tasks[len(results)].number, worker, failure)
        self._again.extend(tasks[len(results) :])
        self._learn(len(results) if is_brief else 0, took_s)
        return [(task.number, result) for task, result in zip(tasks, results, strict=False)]

    def _learn(self, count: int, took_s: float) -> None:
        """Send no more tasks at a time than take as long as they should, and at most twice as many as before."""
        fitting = int(_AT_ONCE_S * count / max(took_s, 1e-9))
        self._at_once = max(1, min(2 * self._at_once, fitting, self._most_at_once))

    def _tried(self, talk: Callable[[], object]) -> bool:
        """Talk with workers; return false if one has died, once the others have come together."""
        self.is_cut_off, died = True, None
        try:
            talk()
        except PeerDiedError as error:
            self._pool.go_on_without(error)
            died = error
        self.is_cut_off = False
        if died is not None:
            self._bury(died)
        return died is None

    def _bury(self, error: PeerDiedError) -> None:
        """Expect a word of all that are left, and take back the tasks of the others."""
        alive, were_busy = self._pool.workers, self._busy
        self._busy = {worker: were_busy.get(worker, []) for worker in alive}
        self._idle.clear()
        for worker, tasks in were_busy.items():
            if worker not in alive:
                self._again.extend(tasks)
                self._deaths.update(task.number for task in tasks)
                deaths = self._deaths[tasks[0].number] if len(tasks) == 1 else 0  # of several any may be the reason
                if deaths >= self._attempts:
                    why = f"{deaths} workers have died of it, the last as {error}"
                    self._failure = self._failure or TaskError(tasks[0].number, worker, why)
        if self._again and not alive:
            self._failure = self._failure or error


def _done(function: Callable[[Any], Any], tasks: Sequence[Any]) -> Outcome:
    """Return what a function makes of tasks, up to the first that fails, or that ends late."""
    results: list[Any] = []
    began = perf_counter()
    for task in tasks:
        try:
            results.append(function(task))
        except Exception as error:
            trace = error.__traceback__
            assert trace is not None
            lines = traceback.format_exception(type(error), error, trace.tb_next)  # without the frame of this function
            return results, "".join(lines), perf_counter() - began
        if perf_counter() - began > _LONGEST_S:
            break
    return results, None, perf_counter() - began
