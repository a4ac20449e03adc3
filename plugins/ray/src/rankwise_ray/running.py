"""Jobs of ranks on a Ray cluster: a function that runs in as many processes, placed together, with a default group."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

import rankwise as dist

__all__ = ["Job", "RankFailedError", "run", "start"]

#: How long the others may take to tell that they have failed too: the first to be heard is not always the cause.
_GRACE_S = 1.0
_COLOUR = re.compile(r"\x1b\[\d+m")
#: What a rank raises because of another.
_CONSEQUENCES = (dist.PeerDiedError, dist.GroupAbortedError, dist.DistNetworkError, dist.DistTimeoutError)


class RankFailedError(RuntimeError):
    """A rank of a job has failed; the message has its traceback.

    Attributes:
        rank: The rank.
    """

    def __init__(self, rank: int, error: Exception) -> None:
        super().__init__(f"rank {rank} has failed: {_COLOUR.sub('', str(error))}")
        self.rank = rank


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
    placement_timeout: float = 60.0,
    timeout: float = 1800.0,
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
        ValueError: `ranks` is no number of ranks.
        DistTimeoutError: The cluster has no room for all of them in time.
    """
    if ranks < 1:
        raise ValueError(f"a job has at least one rank, not {ranks}")
    needs = dict(resources or {"CPU": 1})
    place = placement_group([needs] * ranks, strategy=strategy)
    try:
        if not place.wait(placement_timeout):
            raise dist.DistTimeoutError(
                f"there was no room for {ranks} ranks with {needs} each, placed as {strategy}, within "
                f"{placement_timeout:g} s; of {ray.cluster_resources()} there are free {ray.available_resources()}"
            )
        actors = [_actor(place, rank, needs, runtime_env) for rank in range(ranks)]
        secret = dist.secret.new()
        where = actors[0].serve.remote(bytes(secret))
        terms = ranks, bytes(secret), backend, timeout
        calls = [actor.run.remote(where, *terms, function, list(args)) for actor in actors]
    except BaseException:
        remove_placement_group(place)
        raise
    return Job(actors, calls, place)


def _actor(place: PlacementGroup, rank: int, needs: Mapping[str, float], runtime_env: Mapping[str, Any] | None) -> Any:
    others = {name: amount for name, amount in needs.items() if name not in ("CPU", "GPU", "memory")}
    more = {"memory": needs["memory"]} if "memory" in needs else {}
    return (
        _remote_rank()
        .options(
            num_cpus=needs.get("CPU", 0),
            num_gpus=needs.get("GPU", 0),
            resources=others,
            runtime_env=dict(runtime_env or {}),
            scheduling_strategy=PlacementGroupSchedulingStrategy(place, placement_group_bundle_index=rank),
            **more,
        )
        .remote(rank)
    )


def _remote_rank() -> Any:
    return ray.remote(_Rank)


class Job:
    """Ranks at work. As a context manager it is cancelled at the end of the block, unless it has ended before."""

    def __init__(self, actors: list[Any], calls: list[Any], place: PlacementGroup) -> None:
        self._actors, self._calls, self._place = actors, calls, place
        self._ended = False

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def result(self, timeout: float | None = None) -> list[Any]:
        """Return what each rank has returned; the job has ended then.

        Raises:
            RankFailedError: A rank has failed; the others are ended.
            DistTimeoutError: They are still at work after `timeout` seconds, and go on.
        """
        self._wait(timeout)
        return self._results

    def cancel(self) -> None:
        """End all ranks immediately, and give back their place; again does nothing."""
        if not self._ended:
            self._ended = True
            for actor in self._actors:
                ray.kill(actor)
            remove_placement_group(self._place)

    @cached_property
    def _results(self) -> list[Any]:
        try:
            return list(ray.get(self._calls))
        finally:
            self.cancel()

    def _wait(self, timeout: float | None) -> None:
        until = None if timeout is None else time.monotonic() + timeout
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
    ) -> Any:
        """Join the default group, do what the job is for, and leave."""
        store = self._store or dist.TCPStore(*where, secret=secret, timeout=timeout_s)
        dist.init_process_group(backend, store=store, rank=self._rank, world_size=size, timeout=timeout_s)
        try:
            result = function(*args)
        except BaseException as error:
            if (group := dist.group.WORLD) is not None:
                group.abort(f"as its function raised {type(error).__name__}")
            raise
        dist.destroy_process_group()
        return result
