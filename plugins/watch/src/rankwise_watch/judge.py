"""Who has hung, or is out of reach: a rank whose heartbeats do not come, though they could."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import monotonic

from rankwise.errors import PeerDiedError, PeerUnreachableError
from rankwise_watch.heartbeat import UNKNOWN, Beat, Beats, Lateness
from rankwise_watch.liveness import Processes

#: A process that has stood still itself for so many beats does not judge others by the time that has passed.
LATE_BEATS = 2.0


class Judge:
    """Judges by the time for which a rank has sent nothing, less what this rank, its machine or the store took of it.

    Args:
        beats: The heartbeats of all ranks.
        processes: The processes of those on this machine.
        lateness: By how much the answers to this rank's own came late.
        limit_s: For how long a rank may be silent.
        outage_s: And one on another machine, to which the network may be out of order.
        host: The rank that serves the store, if that is known.
        heard_at: When that rank's server has last answered, if too late for this rank.
    """

    def __init__(
        self,
        beats: Beats,
        processes: Processes,
        lateness: Lateness,
        limit_s: float,
        outage_s: float,
        host: int | None = None,
        heard_at: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._beats, self._processes, self._host, self._heard_at = beats, processes, host, heard_at
        self._lateness, self._late_s = lateness, LATE_BEATS * lateness.every_s
        self._limit_s, self._outage_s = limit_s, outage_s
        self._counts_from = monotonic()

    def was_late(self, late_s: float) -> None:
        """Learn by how much this rank's own round has come late."""
        if late_s > self._late_s:
            self._count_anew()

    def answered(self) -> None:
        """Note that the store has answered; if that has taken long, what others have sent it may be as late."""
        if self._host is not None:
            self._processes.is_fed(self._host)
        if self._lateness.answered(monotonic()) > max(self._late_s, self._limit_s / 2):
            self._count_anew()

    def hung_among(self, ranks: Iterable[int], beats: Mapping[int, Beat]) -> PeerDiedError | None:
        """Return the error of a rank that has come and sent no heartbeat for too long, if there is one.

        The rank that serves the store has just answered, whatever keeps its own watcher from its turn: with some
        hundreds of ranks, for example, the others' requests.
        """
        if monotonic() - self._counts_from < self._limit_s:
            return None
        for peer in ranks:
            beat = beats.get(peer)
            is_here = peer != self._host and not (beat is not None and beat.left)
            if is_here and self.is_silent(peer, self._beats.silent_s(peer, beat)):
                return self._hung(peer)
        return None

    def hung_host(self) -> PeerDiedError | None:
        """Return the error of the rank that serves the store, if that has not answered for too long."""
        if self._host is None:
            return None
        heard_at = max(self._lateness.answered_at, self._heard_at(), self._counts_from)
        return self._hung(self._host) if self.is_silent(self._host, monotonic() - heard_at) else None

    def is_silent(self, peer: int, silent_s: float) -> bool:
        """Tell whether a rank has been silent for too long.

        What its process waits for a processor does not count, nor what this rank's own heartbeats were late by.
        """
        limit_s = self._limit_of(peer)
        if silent_s < limit_s / 2:
            self._processes.is_fed(peer)
            return False
        late_s = self._lateness.within_s(monotonic() - silent_s)
        # Who begins to wait only now has not seen why the rank was silent so far: it gets half of the time anew.
        starved_s = self._processes.starved_s(peer, silent_s - limit_s / 2)
        return silent_s - starved_s - late_s >= limit_s

    def _limit_of(self, peer: int) -> float:
        return self._limit_s if self._processes.is_here(peer) else self._outage_s

    def _count_anew(self) -> None:
        self._counts_from = monotonic()
        self._beats.forgive()

    def _hung(self, peer: int) -> PeerDiedError:
        processes = self._processes
        end = processes.end_of(peer)
        if end is not None:
            return PeerDiedError(peer, processes.host(peer), end)
        state, silence = processes.state(peer), f"no heartbeat for more than {self._limit_of(peer):g} s"
        if state or processes.is_here(peer):
            what = f"hung: its process is there, {state}" if state else "hung"
            return PeerDiedError(peer, processes.host(peer), f"{what}; {silence}")
        return PeerUnreachableError(peer, processes.host(peer), f"{silence}; {UNKNOWN}")
