"""`run` and `start`: a function as the ranks of a gang, on workers of a cluster, all together or not at all."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from distributed import Client

import rankwise as dist
from rankwise.backends import Timeout, seconds, start_thread
from rankwise_dask import judging, scheduling
from rankwise_dask.judging import Terms
from rankwise_dask.orders import Order, Outcome, Work
from rankwise_network.secret import new as new_secret


def run(
    client: Client,
    function: Callable[..., Any],
    *args: Any,
    workers: int | Sequence[str] | None = None,
    backend: str = "gloo",
    timeout: Timeout = 60.0,
    retries: int = 0,
    placement_timeout: Timeout = 60.0,
) -> list[Any]:
    """Run `function(group, *args)` as one rank on each of some workers, and return what the ranks return.

    The ranks begin all together, in threads of their own beside what the workers do otherwise, or not at all. If one
    raises, the others' calls raise too; if a worker is lost, they are told immediately.

    Args:
        client: The cluster's client.
        function: What each rank does. It is given its group, which it passes on as `group=`, and `args`.
        *args: More arguments for it.
        workers: Which workers, by address or name, in the order of ranks; or how many; or all of them.
        backend: The backend of the group.
        timeout: How many seconds the ranks wait for each other, at first and in each call.
        retries: How often to begin again, on workers chosen again, if a rank fails.
        placement_timeout: How many seconds to wait, each time, for workers that are wanted and not there. An adaptive
            cluster is asked for them meanwhile.

    Returns:
        The values, in the order of ranks.

    Raises:
        TypeError: An argument is not what it must be; nothing has been asked of the cluster.
        ValueError: A number is negative, a worker named twice, the client closed, and so on; likewise.
        RuntimeError: The workers that are wanted are not there in time.
        BaseException: What the first rank raised that failed by itself.

    Examples:
        >>> rankwise_dask.run(client, lambda group: dist.get_rank(group), workers=2)
        [0, 1]
    """
    terms = judging.judged(function, backend, timeout, retries, placement_timeout)
    gang = _begun(client, function, args, workers, terms)
    try:
        values: list[Any] = gang.result()
        return values
    except BaseException:
        gang.cancel("the client has given it up")  # nothing, if it has ended
        raise


def start(
    client: Client,
    function: Callable[..., Any],
    *args: Any,
    workers: int | Sequence[str] | None = None,
    backend: str = "gloo",
    timeout: Timeout = 60.0,
    retries: int = 0,
    placement_timeout: Timeout = 60.0,
) -> Gang:
    """Begin what `run` does, and return immediately.

    Returns:
        The gang, whose `result` is what `run` returns.
    """
    terms = judging.judged(function, backend, timeout, retries, placement_timeout)
    return _begun(client, function, args, workers, terms)


def _begun(client: Any, function: Callable[..., Any], args: tuple[Any, ...], workers: Any, terms: Terms) -> Gang:
    client, wanted = judging.client_of(client), judging.wanted(workers)
    return Gang(client, Work.of(function, args), wanted, terms)


class Gang:
    """The ranks of one call of `start`."""

    def __init__(
        self,
        client: Client,
        work: Work,
        wanted: int | list[Any] | None,
        terms: Terms,
        then: Callable[[Order, list[Any]], Any] = lambda order, values: values,
    ) -> None:
        self._client, self._work, self._wanted, self._terms, self._then = client, work, wanted, terms, then
        self._token, self._cancelled = "", ""
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="rankwise gang", daemon=True)
        start_thread(self._thread)

    def result(self, timeout: Timeout | None = None) -> Any:
        """Wait for the end of all ranks.

        Args:
            timeout: For how many seconds, None for ever.

        Returns:
            The values of the ranks, in their order.

        Raises:
            TimeoutError: They have not ended by then; they go on.
            BaseException: What the first rank raised that failed by itself.
        """
        timeout_s = None if timeout is None else seconds(timeout)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"the ranks have not ended within {timeout_s:g} s")
        if self._error is not None:
            raise self._error
        return self._value

    def done(self) -> bool:
        """Tell whether all ranks have ended."""
        return not self._thread.is_alive()

    def cancel(self, reason: str = "it was cancelled") -> None:
        """Have all ranks' calls raise; a rank that calls nothing of rankwise's goes on until it does.

        Args:
            reason: Why, for the message.
        """
        if self.done():
            return
        self._cancelled = reason
        if self._token:
            self._client.run_on_scheduler(scheduling.cancel, self._token, reason)
        self._thread.join(scheduling.LAST_WORDS_S)

    # ------------------------------------------------------------------ its thread

    def _main(self) -> None:
        for left in range(self._terms.retries, -1, -1):
            try:
                self._value, self._error = self._attempt(), None
                return
            except scheduling.Absent as error:  # a worker may be missing for what has failed before
                self._error = self._error or (self._not_begun() if self._cancelled else error)
                return
            except BaseException as error:
                self._error = error
            if left == 0 or self._cancelled:
                return

    def _not_begun(self) -> dist.GroupAbortedError:
        return dist.GroupAbortedError(f"the gang has not begun: {self._cancelled}")

    def _attempt(self) -> Any:
        terms, token = self._terms, secrets.token_hex(8)
        draft = Order(token, {}, new_secret(), terms.backend, terms.timeout_s, self._client.id)
        self._token = token
        try:
            order, place = self._client.run_on_scheduler(scheduling.enroll, draft, self._wanted, terms.placement_s)
            if self._cancelled:
                raise self._not_begun()
            replies = self._client.run_on_scheduler(scheduling.perform, token, self._work, place)
            return self._then(order, _values(order, replies))
        finally:
            with suppress(OSError):  # the client or the scheduler has gone
                self._client.run_on_scheduler(scheduling.withdraw, token)


def _values(order: Order, replies: Mapping[str, Outcome | BaseException]) -> list[Any]:
    """Return what the ranks returned, or raise what was the first cause."""
    outcomes = {order.places[address]: reply for address, reply in replies.items()}
    ended = {rank: outcome for rank, outcome in sorted(outcomes.items()) if isinstance(outcome, Outcome)}
    errors = {rank: outcome.load() for rank, outcome in ended.items() if outcome.failed}
    lost = sorted(outcomes.keys() - ended.keys())
    if not errors and not lost:
        return [outcome.load() for outcome in ended.values()]
    # Those that only heard of it come last: of an abort, and of what follows from a rank that is lost.
    own = [rank for rank, error in errors.items() if not isinstance(error, dist.DistError)]
    if not own and lost:
        address = next(address for address, rank in order.places.items() if rank == lost[0])
        raise _lost(errors.values(), lost[0], address, outcomes[lost[0]])
    first = next(iter([*own, *_causes(errors)]))
    raise errors[first] from _Remote(f"on rank {first}:\n\n{ended[first].traceback}")


def _causes(errors: Mapping[int, BaseException]) -> list[int]:
    """Return ranks that failed, those first that were not merely told that the group is given up."""
    return sorted(errors, key=lambda rank: isinstance(errors[rank], dist.GroupAbortedError))


def _lost(errors: Iterable[BaseException], rank: int, address: str, why: object) -> BaseException:
    """Return the error for a worker that is gone: that of a rank which knew it, if there is one."""
    for error in errors:
        if isinstance(error, dist.PeerDiedError) and error.rank == rank:
            return error
    return dist.PeerDiedError(rank, address, f"Dask has lost its worker {address} ({why})")


class _Remote(Exception):
    """Where on a worker an error was raised; it is shown as its cause."""

    def __str__(self) -> str:
        return str(self.args[0])
