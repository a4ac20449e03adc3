"""How long a wait polls before it sleeps: as long as falling asleep and waking up take, and then it is learned."""

from __future__ import annotations

from time import monotonic

__all__ = ["LONGEST_SPIN_S", "Look", "Patience"]

#: A wait that takes more than so many times the longest look halves the next one, down to this part.
_WORTH, _LEAST_SPIN = 1.5, 1 / 16
#: While this many bytes a second move, polling goes on; for anything slower the wait sleeps.
_FAST = 1e9
#: Steady traffic must not hide time-outs and the deaths of third ranks.
LONGEST_SPIN_S = 0.02


class Patience:
    """How long waits may look; 0 where ranks share processors."""

    def __init__(self) -> None:
        self.spin_s = 0.0
        self._part = 1.0

    @property
    def first_s(self) -> float:
        """How long a wait looks before anything has moved."""
        return self.spin_s * self._part

    def look(self) -> Look:
        """Begin to look."""
        return Look(self.spin_s, self.first_s)

    def learn(self, took_s: float, slept: bool) -> None:
        """Look for longer from now on if that would have saved this wait from sleeping, and less long if it would not.

        Where others want the processor, waits are long, and looks make the system let this process wait for longer.
        """
        if slept and took_s > _WORTH * self.spin_s:
            self._part = max(_LEAST_SPIN, self._part / 2)
        else:
            self._part = min(1.0, 2 * self._part)


class Look:
    """One look. While something moves, it goes on."""

    def __init__(self, spin_s: float, first_s: float) -> None:
        now = self._began = monotonic()
        self._spin_s = spin_s
        self._until, self._limit = now + first_s, now + LONGEST_SPIN_S
        self._moved = False
        #: How long it was in vain until something moved, or still is.
        self.idle_s = 0.0

    def goes_on(self) -> bool:
        """Tell whether there is time left."""
        now = monotonic()
        if not self._moved:
            self.idle_s = now - self._began
        return now < self._until

    def memory_moved(self) -> None:
        """Hear that something has come through shared memory."""
        self._moved, self._until = True, min(monotonic() + self._spin_s, self._limit)

    def bytes_moved(self, nbytes: int) -> None:
        """Hear that something has come through a socket."""
        self._moved, self._until = True, min(self._until + nbytes / _FAST, self._limit)

    @property
    def took_its_time(self) -> bool:
        """Whether it has gone on for so long that other things must have their turn."""
        return self._moved and self._until == self._limit
