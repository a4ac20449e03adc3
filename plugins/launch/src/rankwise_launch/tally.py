"""What an elastic job counts of its ranks, on one node or on all: restarts, losses, and whether it is finishing."""

from __future__ import annotations

from rankwise_launch.job_log import JobLog


class Tally:
    """The counts of a job, which its log holds.

    Args:
        log: The log.
    """

    def __init__(self, log: JobLog) -> None:
        self._log, self._roster = log, log.roster

    @property
    def world_size(self) -> int:
        """How many ranks the job has given numbers to."""
        with self._log.changed:
            return self._roster.world_size

    def lives_before(self, rank: int) -> int:
        """Return how often a rank was started before this launcher had it."""
        with self._log.changed:
            return self._roster.lives[rank]

    def take_restart(self, rank: int) -> int | None:
        """Take one of the restarts; return how many are left then, None if there was none."""
        with self._log.changed:
            taken = self._log.write("restart", rank)
            return self._roster.terms.max_restarts - self._roster.restarts if taken else None

    def lose(self, rank: int) -> tuple[int, bool]:
        """Count a rank that has failed and is not started again; return how many are left, and if these are enough."""
        with self._log.changed:
            self._log.write("give_up", rank)
            return self._roster.left, self._roster.is_enough()

    def finish(self, rank: int) -> None:
        """Note that a rank has ended well."""
        self._log.write("finish", rank)

    def is_finishing(self) -> bool:
        """Tell whether some rank has ended well."""
        with self._log.changed:
            return self._roster.is_finishing
