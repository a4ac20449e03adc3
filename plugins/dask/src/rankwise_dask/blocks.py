"""`map_ranks`: the chunks of a Dask array as the arrays of ranks, where they lie, and a Dask array of the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import dask
import dask.array as da
from dask.core import flatten
from distributed import Client, futures_of, get_client, wait

from rankwise.backends import Timeout
from rankwise_dask import judging, seats
from rankwise_dask.gang import Gang
from rankwise_dask.orders import Order, Work


def map_ranks(
    function: Callable[..., Any],
    array: Any,
    *args: Any,
    client: Client | None = None,
    backend: str = "gloo",
    timeout: Timeout = 60.0,
) -> Any:
    """Run `function(group, chunks, *args)` as a rank on each worker that holds chunks of a Dask array.

    `chunks` is the list of the chunks that the worker holds, in the array's order: NumPy arrays that are not copied and
    cannot be written to. The function returns as many arrays of the same shapes. They stay where they are, as the
    chunks of a new Dask array.

    Args:
        function: What each rank does.
        array: The Dask array; it is computed and kept on the workers first, if it is not yet.
        *args: More arguments for the function.
        client: The cluster's client; by default the current one.
        backend: The backend of the group.
        timeout: How many seconds the ranks wait for each other, at first and in each call.

    Returns:
        A Dask array, chunked as `array` is.

    Raises:
        TypeError: An argument is not what it must be.
        ValueError: A number is negative, the client closed, and so on; or a rank returned arrays of other shapes.
        LookupError: A chunk has left its worker meanwhile.
        BaseException: What `run` raises.

    Examples:
        >>> def centred(group, chunks):
        ...     total = np.array([sum(chunk.sum() for chunk in chunks), sum(chunk.size for chunk in chunks)], float)
        ...     dist.all_reduce(total, group=group)
        ...     return [chunk - total[0] / total[1] for chunk in chunks]
        >>> rankwise_dask.map_ranks(centred, dask.array.arange(8, chunks=2)).compute()
        array([-3.5, -2.5, -1.5, -0.5,  0.5,  1.5,  2.5,  3.5])
    """
    terms, client = judging.judged(function, backend, timeout), judging.client_of(client or get_client())
    if not isinstance(array, da.Array):
        raise TypeError(f"map_ranks: array must be an array of Dask, not {array!r:.100}")
    array = client.persist(array)
    futures = {future.key: future for future in futures_of(array)}  # which hold the chunks until the end
    wait(list(futures.values()))
    holders = _holders(array, client.who_has(list(futures.values())))
    work = Work.of(function, args, holders)
    then = partial(_taken, client, array, holders)
    gang = Gang(client, work, list(holders), terms, then)
    try:
        return gang.result()
    except BaseException:
        gang.cancel("the client has given it up")
        raise


def _holders(array: Any, who_has: Mapping[Any, Any]) -> dict[str, list[Any]]:
    """Return the keys of each worker's chunks; of several that hold one, that with the fewest so far."""
    held: dict[str, list[Any]] = {}
    for key in flatten(array.__dask_keys__()):
        addresses = who_has.get(key) or who_has.get(str(key)) or ()
        if not addresses:
            raise LookupError(f"map_ranks: no worker holds chunk {key}")
        address = min(addresses, key=lambda address: (len(held.get(address, ())), address))
        held.setdefault(address, []).append(key)
    return held


def _taken(client: Client, array: Any, holders: Mapping[str, list[Any]], order: Order, dtypes: list[list[Any]]) -> Any:
    """Make what the ranks returned results of tasks, and these the chunks of a Dask array."""
    made = {}
    for address, rank in order.places.items():
        for key, dtype in zip(holders[address], dtypes[rank], strict=True):
            name = f"rankwise-{order.token}-{'-'.join(map(str, key[1:]))}"
            # Should the worker be lost later, an error is better than a task that waits for its address for ever.
            future = client.submit(
                seats.take,
                order.token,
                address,
                key,
                key=name,
                workers=[address],
                allow_other_workers=True,
                priority=99,
            )
            made[key[1:]] = future, dtype
    for future in wait([future for future, _ in made.values()]).done:
        future.result() if future.status == "error" else None
    if len({dtype for _, dtype in made.values()}) > 1:
        raise ValueError(f"map_ranks: the ranks returned {', '.join(sorted({str(d) for _, d in made.values()}))}")
    return da.block(_nested(array, made, ()))


def _nested(array: Any, made: Mapping[tuple[int, ...], Any], index: tuple[int, ...]) -> Any:
    """Return the chunks as `da.block` wants them: lists within lists, one level for each dimension."""
    if len(index) == array.ndim:
        future, dtype = made[index]
        shape = tuple(sizes[number] for sizes, number in zip(array.chunks, index, strict=True))
        return da.from_delayed(dask.delayed(future), shape, dtype)
    return [_nested(array, made, (*index, number)) for number in range(array.numblocks[len(index)])]
