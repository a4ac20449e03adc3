"""`monitored_barrier`: a barrier that tells every rank which ranks are missing."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.calls.calling import Composed
from rankwise.collective.call import Call
from rankwise.errors import DistTimeoutError
from rankwise.groups.process_group import ProcessGroup
from rankwise.groups.world import resolve
from rankwise.store import PrefixStore, Store
from rankwise.store.patience import patiently

_TOLD = "told of the barrier"


def monitored_barrier(
    group: ProcessGroup | int | None = None, timeout: Timeout | None = None, wait_all_ranks: bool = False
) -> None:
    """Return once every rank has called; if some do not, raise an error on the others that names them.

    It uses the group's store, so it works on every backend and does not change the order of other operations.

    Args:
        group: The group; None is the default group.
        timeout: How long to wait, in seconds or as a `timedelta`; None is the group's time-out.
        wait_all_ranks: Name all missing ranks; otherwise the first suffices.

    Raises:
        DistTimeoutError: Some ranks have not called; every other rank raises the same error, which names them.

    Examples:
        >>> dist.monitored_barrier(timeout=30)
    """
    with Composed() as call:
        if (pg := resolve(group, "monitored_barrier")) is None:
            return
        call.begun_on = pg
        timeout_s = pg.timeout_s if timeout is None else seconds(timeout)
        lane, _ = pg.any_lane("barrier")
        if pg.store is None:
            lane.run(Call("barrier"), timeout_s).wait()
            return
        pg.monitored += 1
        store = _place(pg.store, pg.monitored)
        # The rank that hosts the store must not leave before all have heard.
        before = [entry for entry in pg.world.stay_for if not entry[1].endswith(_TOLD)]
        pg.world.stay_for = [*before, (pg.store, f"{store.prefix}/{_TOLD}", pg.size())]
        store.set(f"rank/{pg.rank()}", b"")
        if store.add("come", 1) == pg.size():
            # Nobody can be there any more, and a loop over barriers must not fill the store.
            _place(pg.store, pg.monitored - 1).delete_prefix("")
            store.compare_set("verdict", "", "ok")
        verdict = _verdict(store, pg, Deadline(timeout_s), wait_all_ranks)
        store.add(_TOLD, 1)
        if verdict != "ok":
            raise DistTimeoutError(verdict)


def _place(store: Store, number: int) -> PrefixStore:
    return PrefixStore(f"monitored/{number}", store)


def _verdict(store: Store, pg: ProcessGroup, deadline: Deadline, wait_all_ranks: bool) -> str:
    with suppress(DistTimeoutError):
        # `any_lane` raises if the group is aborted meanwhile.
        return patiently(partial(store.get, "verdict"), deadline, lambda: pg.any_lane("barrier")).decode()
    try:
        return store.get("verdict", timeout=0).decode()
    except DistTimeoutError:
        missing = [pg.ranks[rank] for rank in range(pg.size()) if not store.check([f"rank/{rank}"])]
        if not missing:
            raise
        named = missing if wait_all_ranks else missing[:1]
        text = (
            f"monitored_barrier on group {pg.group_desc!r}: rank{'s' * (len(named) > 1)} "
            f"{', '.join(map(str, named))} of {pg.size()} did not come within {deadline.timeout_s:g} s"
            + ("" if wait_all_ranks or len(missing) == 1 else " (perhaps others too: wait_all_ranks=True tells)")
        )
        watcher = pg.world.watcher
        if watcher is not None:
            text = watcher.whereabouts(text, named, pg.name)
        return store.compare_set("verdict", "", text).decode()
