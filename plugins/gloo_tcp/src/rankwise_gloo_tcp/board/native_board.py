"""The board, compiled: it meets by the processor's own fences, without the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from rankwise.backends import Deadline
from rankwise_gloo_tcp.board.board import Board
from rankwise_native import Turns


class NativeBoard(Turns, Board):
    """One rank's view of its group's board. Turn and parity are kept by `Turns`, for the next user of the board."""

    def __init__(self, descriptor: int, rank: int, size: int, may_spin: bool, look: Callable[[], object]) -> None:
        Board.__init__(self, descriptor, rank, size, may_spin, look)
        self.attach(self._bytes, self.layout, may_spin)

    def exchange(self, sequence: int, about: tuple[int, int, int, int, int], deadline: Deadline) -> bool:
        """Tell which call this rank makes, and return whether all make the same."""
        self._told = [None, None]  # compiled calls have written there too
        return super().exchange(sequence, about, deadline)

    def await_all(self, deadline: Deadline) -> None:
        """Return once all have come to this turn.

        Raises:
            TimeoutError: Some have not.
        """
        self._sleep(self._turn, deadline)

    def may_read(self, pids: Sequence[int], all_compiled: bool) -> None:
        """Learn that each rank may read the memory of all others, which are these processes."""
        super().may_read(pids, all_compiled)
        self.read_from(self.pids, self.fetch_nbytes(), self.fetch_nbytes(self.size - 1))

    def close(self) -> None:
        """Give the memory back."""
        self.detach()
        super().close()

    def _arrive(self, turn: int, deadline: Deadline) -> None:
        if not self.arrive():
            self._sleep(turn, deadline)

    def _sleep(self, turn: int, deadline: Deadline) -> None:
        began = monotonic()
        while not self.doze(self.slice_s(began, deadline)):
            self._look()
            if deadline.expired():
                raise TimeoutError

    def _wake(self) -> None:
        self.wake()
