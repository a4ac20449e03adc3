"""The exchange of cards, and what they tell: which machine each rank is on."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import Any

from rankwise.backends import Context, Deadline, Store
from rankwise.backends import exchange as trade
from rankwise_gloo_tcp.protocol.card import Card, read_card, write_card


def machine() -> tuple[str, str]:
    """Return what stands for this machine and network namespace, and for this process namespace."""
    boot = _read("/proc/sys/kernel/random/boot_id") or platform.node()
    return f"{boot}/{_link('/proc/self/ns/net')}", f"{boot}/{_link('/proc/self/ns/pid')}"


def exchange(context: Context, store: Store, card: Card, deadline: Deadline) -> tuple[list[Card], bytes]:
    """Tell the others one's card; return everyone's, and the random token of this meeting, which is rank 0's.

    While some have not come, it is looked now and then whether they cannot come any more.

    Raises:
        RendezvousError: A card is malformed.
    """
    mine = card._replace(token="" if context.rank else os.urandom(32).hex())
    rows = trade(store, context.rank, context.global_ranks, write_card(mine), deadline, context.look)
    all_cards = [read_card(row, peer) for peer, row in enumerate(rows)]
    return all_cards, bytes.fromhex(all_cards[0].token)


def places(cards: Sequence[Card]) -> list[list[int]]:
    """Return the ranks of each host: those that can meet there."""
    found: dict[Any, list[int]] = {}
    for rank, card in enumerate(cards):
        found.setdefault((card.machine, card.uid) if card.unix else rank, []).append(rank)
    return list(found.values())


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        # opens: nothing, the kernel says it
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""
