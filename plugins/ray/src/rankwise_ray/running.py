"""Jobs of ranks on a Ray cluster: a function that runs in as many processes, placed together, with a default group."""

from __future__ import annotations

import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from queue import SimpleQueue
from typing import Any

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

import rankwise as dist
from rankwise.backends import Timeout, seconds, start_thread, whole_number
from rankwise_ray import judging
from rankwise_ray.places import Place

#: How long the others may take to tell that they have failed too: the first to be heard is not always the cause.
_GRACE_S = 1.0
_STRATEGIES = "PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"
_COLOUR = re.compile(r"\x1b\[\d+m")
#: What a rank raises because of another.
_CONSEQUENCES = (dist.PeerDiedError, dist.GroupAbortedError, dist.DistNetworkError, dist.DistTimeoutError)


class RankFailedError(RuntimeError):
    """A rank of a job has failed; the message has its traceback.

    Attributes:
        rank: The rank.
    """

    def __init__(self, rank: int, error: object) -> None:
        super().__init__(rank, _COLOUR.sub("", str(error)))
        self.rank = rank

    def __str__(self) -> str:
        return f"rank {self.rank} has failed: {self.args[1]}"


def run(function: Callable[..., Any], args: Sequence[Any] = (), *, ranks: int, **options: Any) -> list[Any]:
    """Run a function as ranks of a job, and return what each has returned.

    In the function the default group is there: `rankwise.get_rank()` and all calls work from the first line on. What it
    prints comes out here, with the rank. If a rank fails, the others are ended; so they are if this call is
    interrupted.

    Args:
        function: What each rank does; it and `args` are pickled as for any task of Ray's.
        args: Its arguments.
        ranks: How many ranks.
        **options: As for `start`.

    Raises:
        RankFailedError: A rank has raised, or its process has died.
        DistTimeoutError: The cluster has no room for the job in time.
    """
    with start(function, args, ranks=ranks, **options) as job:
        return job.result()


def start(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    *,
    ranks: int,
    resources: Mapping[str, float] | None = None,
    strategy: str = "PACK",
    placement_timeout: Timeout = 60.0,
    timeout: Timeout = 1800.0,
    backend: str | None = None,
    runtime_env: Mapping[str, Any] | None = None,
) -> Job:
    """Begin what `run` does, and return a `Job` to wait for, or to cancel.

    Args:
        function: What each rank does.
        args: Its arguments.
        ranks: How many ranks.
        resources: What each rank needs, such as `{"CPU": 2, "GPU": 1}`; one CPU.
        strategy: How they are placed, as Ray's placement groups have it: "PACK", "SPREAD", "STRICT_PACK",
            "STRICT_SPREAD".
        placement_timeout: How many seconds to wait for room for all of them.
        timeout: Time-out of the group's operations, in seconds.
        backend: As for `rankwise.init_process_group`.
        runtime_env: The ranks' environment, as Ray has it.

    Raises:
        TypeError: An argument is not what it must be; nothing has been asked of the cluster.
        ValueError: `ranks` is no number of ranks, an amount is negative, and so on; likewise.
        DistTimeoutError: The cluster has no room for all of them in time.
    """
    if not callable(function):
        raise TypeError(f"function must be callable, not {function!r:.100}")
    ranks = whole_number(ranks, "ranks", 1)
    given, needs = judging.sequence("args", args, "arguments"), judging.needs(resources)
    strategy = judging.one_of("strategy", strategy, _STRATEGIES)
    placement_s = seconds(placement_timeout, "placement_timeout")
    secret = bytes(dist.secret.new())
    terms = ranks, secret, judging.backend(backend), seconds(timeout)
    actor = _actor(needs, runtime_env)
    place = _placed(needs, ranks, strategy, placement_s)
    try:
        actors = [_on(actor, place, rank) for rank in range(ranks)]
        where = actors[0].serve.remote(secret)
        calls = [each.run.options(num_returns=2).remote(where, *terms, function, given) for each in actors]
        return Job(actors, calls, place)
    except BaseException:
        place.give_back()
        raise


def _placed(needs: Mapping[str, float], ranks: int, strategy: str, timeout_s: float) -> Place:
    """Return a place for all ranks once the cluster has it."""
    until = time.monotonic() + timeout_s
    with suppress(ray.exceptions.GetTimeoutError):
        place = Place(needs, ranks, strategy, timeout_s)
        try:
            if place.group.wait(max(0.0, until - time.monotonic())):
                return place
        except BaseException:
            place.give_back()
            raise
        place.give_back()
    raise dist.DistTimeoutError(
        f"there was no room for {ranks} ranks with {dict(needs)} each, placed as {strategy}, within "
        f"{timeout_s:g} s; of {ray.cluster_resources()} there are free {ray.available_resources()}"
    )


def _actor(needs: Mapping[str, float], runtime_env: Mapping[str, Any] | None) -> Any:
    """Return the class of ranks with what they need, which Ray judges here."""
    if not isinstance(runtime_env, Mapping | None):
        raise TypeError(f"runtime_env must be a mapping, not {runtime_env!r:.100}")
    others = {name: amount for name, amount in needs.items() if name not in ("CPU", "GPU", "memory")}
    more = {"memory": needs["memory"]} if "memory" in needs else {}
    return ray.remote(
        num_cpus=needs.get("CPU", 0),
        num_gpus=needs.get("GPU", 0),
        resources=others,
        runtime_env=dict(runtime_env or {}),
        **more,
    )(_Rank)


def _on(actor: Any, place: Place, rank: int) -> Any:
    """Return a new actor of a rank, in its part of the place."""
    where = PlacementGroupSchedulingStrategy(place.group, placement_group_bundle_index=rank)
    return actor.options(scheduling_strategy=where).remote(rank)


class Job:
    """Ranks at work, and their place: both are given back at the ranks' end, by `cancel`, or with the last reference.

    As a context manager it is cancelled at the end of the block, unless it has ended before.
    """

    def __init__(self, actors: list[Any], calls: list[list[Any]], place: Place) -> None:
        self._calls, ended = map(list, zip(*calls, strict=True))
        #: Gets what tells of an end: the number of a rank that has ended, or None if all are to end now.
        self._ends: SimpleQueue[int | None] = SimpleQueue()
        keep = threading.Thread(target=_keep, args=(actors, place, self._ends), name="rankwise-ray job", daemon=True)
        start_thread(keep)
        self._keeping = keep
        for rank, call in enumerate(ended):
            call.future().add_done_callback(partial(_tell, self._ends, rank))
        # A queue, as Python's garbage collector may come wherever a thread holds a lock.
        weakref.finalize(self, self._ends.put, None).atexit = False

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def result(self, timeout: Timeout | None = None) -> list[Any]:
        """Return what each rank has returned; the job has ended then.

        Raises:
            RankFailedError: A rank has failed; the others are ended.
            DistTimeoutError: They are still at work after `timeout` seconds, and go on.
        """
        self._wait(None if timeout is None else seconds(timeout))
        return self._results

    def cancel(self) -> None:
        """End all ranks immediately, and give back their place; again does nothing."""
        self._ends.put(None)
        self._keeping.join()

    @cached_property
    def _results(self) -> list[Any]:
        try:
            return list(ray.get(self._calls))
        finally:
            self.cancel()

    def _wait(self, timeout_s: float | None) -> None:
        until = None if timeout_s is None else time.monotonic() + timeout_s
        pending = list(self._calls)
        while pending:
            left_s = None if until is None else max(0.0, until - time.monotonic())
            done, pending = ray.wait(pending, num_returns=1, timeout=left_s)
            if not done:
                raise dist.DistTimeoutError(f"{len(pending)} of {len(self._calls)} ranks are still at work")
            if _failure(done[0]) is not None:
                self._fail(pending)

    def _fail(self, pending: list[Any]) -> None:
        """Raise the error that the others' come from, as far as one can tell, and end what is left."""
        if pending:
            ray.wait(pending, num_returns=len(pending), timeout=_GRACE_S)
        ready, _ = ray.wait(self._calls, num_returns=len(self._calls), timeout=0)
        failed = [(self._calls.index(call), error) for call in ready if (error := _failure(call)) is not None]
        rank, error = min(failed, key=lambda each: isinstance(getattr(each[1], "cause", None), _CONSEQUENCES))
        self.cancel()
        raise RankFailedError(rank, error) from getattr(error, "cause", None)


def _keep(actors: list[Any], place: Place, ends: SimpleQueue[int | None]) -> None:
    """Wait until all ranks have ended, or are to end, and give back what they have."""
    for _ in actors:
        if ends.get() is None:
            break
    for actor in actors if ray.is_initialized() else ():
        with suppress(Exception):  # the cluster is ending
            ray.kill(actor)
    place.give_back()


def _tell(ends: SimpleQueue[int | None], rank: int, _: object) -> None:
    ends.put(rank)


def _failure(call: Any) -> Exception | None:
    try:
        ray.get(call)
    except Exception as error:
        return error
    return None


class _Rank:
    """One rank's process. Ray puts its `repr` before each line that it prints."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._store: dist.TCPStore | None = None

    def __repr__(self) -> str:
        return f"rank {self._rank}"

    def serve(self, secret: bytes) -> tuple[str, int]:
        """Serve the store that the ranks meet in, and return where."""
        address = ray.util.get_node_ip_address()
        self._store = dist.TCPStore(address, is_master=True, secret=secret)
        return address, self._store.port

    def run(
        self,
        where: tuple[str, int],
        size: int,
        secret: bytes,
        backend: str | None,
        timeout_s: float,
        function: Callable[..., Any],
        args: list[Any],
    ) -> tuple[Any, None]:
        """Join the default group, do what the job is for, and leave; return the result, and what tells of the end."""
        store = self._store or dist.TCPStore(*where, secret=secret, timeout=timeout_s)
        dist.init_process_group(backend, store=store, rank=self._rank, world_size=size, timeout=timeout_s)
        try:
            result = function(*args)
        except BaseException as error:
            if (group := dist.group.WORLD) is not None:
                group.abort(f"as its function raised {type(error).__name__}")
            raise
        if dist.is_initialized():  # the function may have left it, as the last thing that programs do
            dist.destroy_process_group()
        return result, None
