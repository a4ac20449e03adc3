"""Whether the members of a new epoch hear each other over the network, which they try if one of them doubts it.

Each sends a byte to those of other hosts, and receives one. All go by one verdict in the store, and each remembers whom
it has missed: the next epoch is made without the smaller part (`rankwise_elastic.rounds.together`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np

import rankwise as dist
from rankwise.errors import DistError, DistNetworkError, DistStoreError, DistTimeoutError
from rankwise_elastic.board import StoreBoard, where
from rankwise_elastic.rounds import Agreed

#: How long a member has to be heard; a packet that is lost is sent again after one second.
TRIAL_S = 3.0
#: How long the others may take to say that they have heard everyone; they began when this process did.
_VERDICT_S = 2 * TRIAL_S
_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
#: The bytes of a trial must not meet the program's own messages; its group is new, so that there are none.
_TAG = 0


class NotHeardError(DistNetworkError):
    """The members of an epoch do not all hear each other.

    Attributes:
        missed: Those that this process has not heard.
    """

    def __init__(self, message: str, missed: frozenset[str] = frozenset()) -> None:
        super().__init__(message)
        self.missed = missed


def tried(board: StoreBoard, agreed: Agreed, process: str, is_gone: Callable[[str], bool]) -> None:
    """Try the network between members of an epoch whose group has just been made: the pairs of which one doubts.

    Args:
        board: Where the verdict is.
        agreed: The epoch.
        process: This one.
        is_gone: Tells whether a process has ended.

    Raises:
        NotHeardError: Somebody was not heard; all members raise this.
        DistStoreError: The store is gone.
    """
    spaces = {_space(member) for member in agreed.members}
    if len(spaces) == 1 and "" not in spaces:
        return
    missed, is_well = _missed(agreed, process)
    if not _verdict(board, agreed, is_well, lambda: any(map(is_gone, agreed.members))):
        raise NotHeardError(_words(agreed, missed), missed)


def _missed(agreed: Agreed, process: str) -> tuple[frozenset[str], bool]:
    """Return the members that this process does not hear, and whether it hears all."""
    works: dict[int, dist.Work] = {}
    began = time.monotonic()
    try:
        for rank in _to_try(agreed, process):
            works[rank] = dist.irecv(np.zeros(1, np.uint8), rank, tag=_TAG)
            dist.isend(np.zeros(1, np.uint8), rank, tag=_TAG)
        for work in works.values():
            with suppress(DistTimeoutError):
                work.wait(max(0.001, began + TRIAL_S - time.monotonic()))
    except DistNetworkError as error:
        if time.monotonic() - began < TRIAL_S / 2:  # too early to say anything of the others
            return frozenset() if error.rank is None else frozenset([agreed.members[error.rank]]), False
    except DistStoreError:
        raise
    except DistError:  # a death says nothing of the network
        return frozenset(), False
    missed = frozenset(agreed.members[rank] for rank, work in works.items() if not work.is_success())
    return missed, not missed


def _to_try(agreed: Agreed, process: str) -> list[int]:
    """Return the ranks that this process tries: nothing can part it from those that share its network."""
    mine, doubts = _space(process), process in agreed.doubters
    return [
        rank
        for rank, member in enumerate(agreed.members)
        if member != process and (doubts or member in agreed.doubters) and (not mine or _space(member) != mine)
    ]


def _space(process: str) -> str:
    """Return what processes have in common that share a host and its network; "" if nobody knows."""
    return str(json.loads(process)["space"])


def _verdict(board: StoreBoard, agreed: Agreed, is_well: bool, is_hopeless: Callable[[], bool]) -> bool:
    """Return whether all members have heard everyone; the same on all of them."""
    if not is_well:
        return board.judge(agreed.epoch, False)
    if board.note_well(agreed.epoch) == len(agreed.members):
        return board.judge(agreed.epoch, True)
    until, pause_s = time.monotonic() + _VERDICT_S, _PAUSE_S
    while (verdict := board.verdict(agreed.epoch)) is None:
        if time.monotonic() > until or is_hopeless():
            return board.judge(agreed.epoch, False)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return verdict


def _words(agreed: Agreed, missed: frozenset[str]) -> str:
    them = [f"rank {rank} ({where(each)})" for rank, each in enumerate(agreed.members) if each in missed]
    whom = f"; this one has not heard {', '.join(them)}" if them else ""
    return f"not all members of epoch {agreed.epoch} have heard each other over the network{whom}"
