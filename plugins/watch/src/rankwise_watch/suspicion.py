"""Whether a rank has died to which a connection failed: its process or its heartbeats tell, never the connection."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

from rankwise.errors import DistError
from rankwise_watch.heartbeat import Beats

__all__ = ["BEATS", "silence"]

#: A rank that sends no heartbeat for so many intervals after a connection to it has failed has died.
BEATS = 2.5
_LOOK_S = 0.1


def silence(
    beats: Beats,
    peer: int,
    every_s: float,
    serves_store: bool,
    live: Callable[[], object],
    end: Callable[[], str | None],
    is_decided: Callable[[], bool],
) -> str | None:
    """Wait for the next heartbeat of a rank.

    Args:
        beats: The heartbeats of all ranks.
        peer: The rank.
        every_s: How often each rank sends one.
        serves_store: Whether the rank serves the store: then the store's answers are its heartbeats.
        live: Sends a heartbeat of this rank, which the peer may be waiting for as well.
        end: Tells how the rank's process has ended, as soon as that is known.
        is_decided: Tells whether another rank has found out meanwhile.

    Returns:
        Why the rank is gone, or None if it lives, or nobody knows.
    """
    began = monotonic()
    live_at, first, answered, patience_s = began, None, False, BEATS * every_s
    while monotonic() < began + patience_s:
        cause = end()
        if cause is not None:
            return cause
        try:
            if is_decided():
                return None
            if monotonic() >= live_at:
                live()
                live_at += every_s
            beat = beats.read([peer]).get(peer)
            if beat is not None and beat.left:
                return "it has destroyed its groups"
            if beat is not None and beat.is_told:  # who told of it may be gone, which it notices an interval later
                patience_s = (BEATS + 1) * every_s
            number = 0 if beat is None else beat.number
            if first is not None and number != first:
                return None
            first, answered = number, True
        except DistError:
            answered = False
        sleep(_LOOK_S)
    if serves_store:
        return None if answered else "its connections have ended, and the store that it serves does not answer"
    if not answered:
        return None
    return f"its connections have ended, and it has sent no heartbeat for {patience_s:g} s since"
