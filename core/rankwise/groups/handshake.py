"""How the members of a group find out, before anything else, that they mean the same group.

Everything goes through a store. The first rank to come writes the configuration, and the others compare theirs with it.
Each takes its seat, and the one that takes the last seat writes the verdict that all wait for. A rank that finds a
contradiction writes that as the verdict, so all ranks raise the same error.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rankwise import errors
from rankwise.basics.deadline import Deadline
from rankwise.basics.systems import boot_of_macos, process_stat
from rankwise.errors import (
    BackendNotFoundError,
    BackendUnavailableError,
    DistError,
    DistTimeoutError,
    GroupAbortedError,
    PeerDiedError,
    PluginError,
    RendezvousError,
)
from rankwise.store import Store
from rankwise.store.base import ArrivalPoint
from rankwise.store.operations import FINE
from rankwise.store.primitives import NO_KEYS, Series

#: Where in a group's store its ranks meet.
MEETING = "meet"

_FINE = FINE.decode()

#: How the system marks a process that has ended, and whose end nobody has asked for yet.
_ENDED = ("Z", "X")
#: The errors of a rank that cannot have the backend that the program wishes; all ranks raise what the first one raises.
REFUSALS = (BackendNotFoundError, BackendUnavailableError, PluginError)
#: What `meet` raises once something is said.
SAID = (RendezvousError, DistTimeoutError, PeerDiedError, GroupAbortedError, *REFUSALS)


def meet(
    store: Store,
    rank: int,
    ranks: Sequence[int],
    config: Mapping[str, Any],
    what: str,
    deadline: Deadline,
    tell_more: Callable[[str, list[int]], str] | None = None,
    read: bool = False,
) -> list[bytes | None]:
    """Return once all `ranks` have come with the same configuration.

    The rank that hosts the store must not leave after an error before `to_be_told` ranks know it, by the counter
    "told".

    Args:
        store: A store whose keys nobody else uses.
        rank: This process's rank, one of `ranks`.
        ranks: All that must come.
        config: What must be the same for all; JSON values.
        what: What they come for, for messages.
        deadline: When to give up.
        tell_more: Adds to a text about missing ranks what is known of them.
        read: Whether to return what the others have told of themselves.

    Returns:
        For each rank its host and its process as JSON, if `read`, else nothing: with a thousand ranks nobody needs it.

    Raises:
        RendezvousError: Two processes claim one rank, or two configurations differ; the same text on all ranks.
        DistTimeoutError: Some have not come; they are named, on all ranks that have.
        DistError: One has died or was interrupted meanwhile, or cannot have the backend that it was asked for.
    """
    seat = {"rank": rank, "host": platform.node(), "pid": os.getpid(), "call": os.urandom(16).hex()}
    seat |= {"space": process_space(), "started": started_at(os.getpid())}
    card = seat | {"config": dict(config), "count": len(ranks), "came": _now()}
    mine = [json.dumps(each, sort_keys=True).encode() for each in (card, seat)]
    first, holder = map(json.loads, store._claim(["config", f"rank/{rank}"], mine))
    problem = _differences(what, first, card) or _duplicate(what, holder, seat)
    if problem is not None:  # to be written before this rank is counted: the last to come finds all well otherwise
        store.compare_set("fewest", "", str(min(first.get("count", len(ranks)), len(ranks))))
        store.compare_set("verdict", "", verdict_of(problem))
    is_numbered = tuple(ranks) == tuple(range(len(ranks)))  # outside of the world ranks may have other names
    wanted = Series("rank/", len(ranks)) if read and is_numbered else NO_KEYS
    verdict, seats = _verdict(store, ranks, wanted, what, deadline, tell_more)
    if verdict == _FINE and problem is not None:
        raise problem  # the others are complete without this rank, which is one too many
    if (error := told_by(verdict)) is not None:
        store.add("told", 1)
        raise error
    return seats if is_numbered or not read else [*store.multi_get([f"rank/{peer}" for peer in ranks])]


def verdict_of(error: DistError) -> str:
    """Return the verdict that has all who wait for it raise an error."""
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)  # not a backend's own
    return json.dumps([kind.__name__, *error.args])


def told_by(verdict: str) -> DistError | None:
    """Return the error of a verdict; None if all is well, or nothing is said so far."""
    if verdict in ("", _FINE):
        return None
    try:
        kind, *args = json.loads(verdict)
        found = vars(errors)[kind]
        if isinstance(found, type) and issubclass(found, DistError):
            return found(*args)
    except (LookupError, RecursionError, TypeError, ValueError):
        pass  # nobody takes another's word for a class, or for anything else of Python's
    return RendezvousError(f"what a rank has said of the others makes no sense: {verdict[:200]!r}")


def death_verdict(error: PeerDiedError, during: str) -> str:
    """Return the verdict that has all who wait for it raise that a rank has died, or is out of reach."""
    cause = f"{error.cause}, during {during}" if during else error.cause
    return verdict_of(type(error)(error.rank, error.host, cause))


def interrupted(what: str, rank: int, error: BaseException) -> GroupAbortedError:
    """Return the error of all who wait for a rank that was interrupted."""
    return GroupAbortedError(f"{what} was interrupted on rank {rank} by {type(error).__name__}")


def call_off(store: Store, error: DistError) -> int | None:
    """Have all who meet raise an error, for a rank that does not; return how many have come, and will be told.

    If all have met already, this rank too, they go on: then it returns None.
    """
    return None if store.compare_set("verdict", "", verdict_of(error)) == FINE else store.add("come", 0)


def refuse(store: Store, what: str, rank: int, error: DistError) -> None:
    """Have all who meet raise the error of a rank that cannot take part; it does not wait for them."""
    store.compare_set("verdict", "", verdict_of(type(error)(f"{what}: rank {rank} cannot take part: {error}")))
    store.add("told", 1)


def to_be_told(store: Store, ranks: Sequence[int], error: DistError) -> int:
    """Return how many ranks will be told of an error of `meet`.

    Those that have not come in time will not come; but a contradiction is found before all have come. Where it is about
    how many they are, the fewest come at least, and nobody waits for more.
    """
    if isinstance(error, DistTimeoutError):
        return store.add("come", 0)
    return int(store.peek("fewest") or len(ranks))


def wait_for(store: Store, counter: str, count: int, deadline: Deadline) -> None:
    """Wait until a counter in a group's store has reached `count`, or all members have left the group."""
    pause_s = 0.001
    while not (has_reached(store, counter, count) or deadline.expired()):
        time.sleep(min(pause_s, deadline.remaining()))
        pause_s = min(2 * pause_s, 0.05)


def has_reached(store: Store, counter: str, count: int) -> bool:
    """Tell whether a counter in a group's store has reached `count`, or all members have left the group."""
    return int(store.peek(counter) or b"0") >= count or store.peek(f"{MEETING}/config") is None


def leave(store: Store, came: int) -> None:
    """Count this rank among those that have left a group; the last of all that came takes its keys out of the store."""
    if store.add("left", 1) >= came:
        store.delete_prefix("")


def seats(rank: int) -> list[str]:
    """Return the keys by which `is_over` tells."""
    return [f"{MEETING}/config", f"{MEETING}/rank/{rank}"]


def is_over(store: Store, rank: int, found: Sequence[bytes | None] = ()) -> bool:
    """Tell whether the ranks that met in a group's store are gone, as after the restart of a job that was killed.

    So it is if another process has taken this rank's seat and is gone, or is on another host and has met all the rest;
    one that is there claims the same rank. And so it is if the first to come was gone before this process began: then
    this rank may not have come at all the last time.
    """
    first, seat = found or store._set_and_peek({}, seats(rank))
    if first is None:
        return False
    card = json.loads(first)
    if is_gone(card) and card.get("came", 0.0) < _own_start():
        return True
    if seat is None:
        return False
    card = json.loads(seat)
    return is_gone(card) if _is_of_this_machine(card) else store.peek(f"{MEETING}/verdict") is not None


def _is_of_this_machine(card: Mapping[str, Any]) -> bool:
    # Without its start a process cannot be told from another that gets its number later.
    return bool(card["started"] and card["space"] == process_space() != "")


def is_gone(card: Mapping[str, Any]) -> bool:
    """Tell whether the process that wrote a card is known to have ended."""
    if not _is_of_this_machine(card):
        return False
    stat = process_stat(card["pid"])
    return not stat or stat[0] in _ENDED or stat[19] != card["started"]


def _now() -> float:
    """Return the seconds since this machine was started, by which processes' beginnings are told too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else 0.0


def _own_start() -> float:
    """Return when this process began, as `_now` counts; 0 if nobody knows."""
    ticks = started_at(os.getpid())
    return int(ticks) / os.sysconf("SC_CLK_TCK") if ticks else 0.0


def process_space() -> str:
    """Return what processes have in common that know each other by number and share a network; "" if nobody knows."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            spaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "net")]
            return "/".join([file.read().strip(), *spaces])
    except OSError:
        return boot_of_macos()  # which has no namespaces


def hosts_of(seats: Iterable[bytes | None]) -> int:
    """Return on how many hosts those are who have taken these seats; processes that share no numbers count as apart."""
    cards = [json.loads(seat) for seat in seats if seat is not None]
    return len({card["space"] or card["host"] for card in cards})


def started_at(pid: int) -> str:
    """Return when a process was started, by which it is told from another that gets its number later."""
    stat = process_stat(pid)
    return stat[19] if stat else ""


def _verdict(
    store: Store,
    ranks: Sequence[int],
    wanted: Series,
    what: str,
    deadline: Deadline,
    tell_more: Callable[[str, list[int]], str] | None,
) -> tuple[str, list[bytes | None]]:
    """Be counted; return the verdict once there is one, and what is wanted then."""
    try:
        said, found = store._arrive({}, ArrivalPoint("come", "verdict", len(ranks)), wanted, deadline.remaining())
        return said.decode(), found
    except DistTimeoutError:
        there = store.peek("verdict")
        if there is not None:  # another has looked who is missing
            return there.decode(), []
        missing = [rank for rank in ranks if not store.check([f"rank/{rank}"])]
        if not missing:
            raise
        few = ", ".join(map(str, missing[:32])) + (" ..." if len(missing) > 32 else "")
        who = f"rank{'s' * (len(missing) > 1)} {few} of {len(ranks)}"
        text = f"{what}: {who} did not come within {deadline.timeout_s:g} s"
        text = _with_refused(text if tell_more is None else tell_more(text, missing), store)
        return store.compare_set("verdict", "", verdict_of(DistTimeoutError(text))).decode(), []


def _with_refused(text: str, store: Store) -> str:
    refused = store.num_refused()
    if not refused:
        return text
    return (
        f"{text}; the store has refused {refused} connection{'s' * (refused > 1)} of processes that have another job "
        "secret or none: RANKWISE_SECRET_FILE must name the same secret for all"
    )


def _differences(what: str, theirs: dict[str, Any], mine: dict[str, Any]) -> RendezvousError | None:
    differ = [
        f"{key} is {theirs['config'].get(key)!r} for {_name(theirs)} but {mine['config'].get(key)!r} for {_name(mine)}"
        for key in sorted({*theirs["config"], *mine["config"]})
        if theirs["config"].get(key) != mine["config"].get(key)
    ]
    return RendezvousError(f"{what}: the ranks disagree: {'; '.join(differ)}") if differ else None


def _duplicate(what: str, theirs: dict[str, Any], mine: dict[str, Any]) -> RendezvousError | None:
    if theirs == mine:
        return None
    return RendezvousError(f"{what}: two processes claim rank {mine['rank']}: {_name(theirs)} and {_name(mine)}")


def _name(card: dict[str, Any]) -> str:
    return f"rank {card['rank']} (host {card['host']}, pid {card['pid']})"
