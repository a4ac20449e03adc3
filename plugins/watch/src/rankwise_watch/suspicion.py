"""Whether a rank has died to which a connection failed: its process or its heartbeats tell, never the connection.

If the connection fell silent, and no heartbeat comes either, the rank is out of reach, and may live.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

from rankwise.errors import DistError, PeerDiedError, PeerUnreachableError
from rankwise_watch.heartbeat import UNKNOWN, Beats

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
    is_silent: bool,
) -> tuple[type[PeerDiedError], str] | None:
    """Wait for the next heartbeat of a rank.

    Args:
        beats: The heartbeats of all ranks.
        peer: The rank.
        every_s: How often each rank sends one.
        serves_store: Whether the rank serves the store: then the store's answers are its heartbeats.
        live: Sends a heartbeat of this rank, which the peer may be waiting for as well.
        end: Tells how the rank's process has ended, as soon as that is known.
        is_decided: Tells whether another rank has found out meanwhile.
        is_silent: Whether nothing was answered on the connection, rather than that it has ended.

    Returns:
        What to raise, and why the rank is gone or out of reach; or None if it lives, or nobody knows.
    """
    lost = PeerUnreachableError if is_silent else PeerDiedError
    connections = "nothing is answered on its connections" if is_silent else "its connections have ended"
    end_words = f"; {UNKNOWN}" if is_silent else ""
    began = monotonic()
    live_at, first, answered, patience_s = began, None, False, BEATS * every_s
    while monotonic() < began + patience_s:
        cause = end()
        if cause is not None:
            return PeerDiedError, cause
        try:
            if is_decided():
                return None
            if monotonic() >= live_at:
                live()
                live_at += every_s
            beat = beats.read([peer]).get(peer)
            if beat is not None and beat.left:
                return PeerDiedError, "it has destroyed its groups"
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
        unheard = f"{connections}, and the store that it serves does not answer{end_words}"
        return None if answered else (lost, unheard)
    if not answered:
        return None
    return lost, f"{connections}, and it has sent no heartbeat for {patience_s:g} s since{end_words}"
