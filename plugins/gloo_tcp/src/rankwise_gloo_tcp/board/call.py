"""What all collectives at the board have in common.

A call is prepared once for arrays of given sizes and dtypes: its fingerprint, and the views of shared memory that it
goes through. Then each call of a small collective only has to write, post, wait, compare and read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from rankwise.backends import Array, Deadline, Fingerprint
from rankwise_gloo_tcp.board.board import Board

#: Carries out the call of a number until a deadline; tells whether all make the same.
Trade = Callable[[int, Deadline], bool]
#: Waits for everyone until a deadline, and tells numbers, if there are any.
Meet = Callable[..., None]


class BoardCall:
    """One collective, prepared for arrays of given sizes.

    Attributes:
        longest: How many elements go from this rank to another at the most, where the others cannot know.
    """

    longest = 0

    def __init__(self, fingerprint: Fingerprint) -> None:
        self.fingerprint = fingerprint

    def about(self, rank: int) -> tuple[int, int, int, int, int]:
        """Return what `Board.exchange` tells of this call."""
        call = self.fingerprint
        digest = call.digest() ^ _salt(type(self).__name__)
        return (digest, call.count, *call.sums(rank), self.longest)

    def bound(self, board: Board, about: tuple[int, int, int, int, int], given: Any) -> Trade | None:
        """Return what offers, exchanges and takes for calls on the same arrays; None where that is no shorter."""
        return None

    def told(self, about: tuple[int, int, int, int, int]) -> tuple[int, int, int, int, int]:
        """Return what `Board.exchange` tells of this very call, once it has been offered."""
        return about

    def offer(self, board: Board, given: Any) -> None:
        """Write what the others will want of what this call was given; nothing has been compared yet.

        Each call uses the areas once here, also one without data, so that ranks which disagree stay in step.
        """
        raise NotImplementedError

    def take(self, board: Board, meet: Meet, deadline: Deadline, given: Any) -> None:
        """Finish, now that all have made the same call."""
        raise NotImplementedError


class MessageCall(BoardCall):
    """A collective that goes by messages once the calls have been compared."""

    def __init__(self, fingerprint: Fingerprint, body: Callable[[Deadline, Sequence[int]], None]) -> None:
        super().__init__(fingerprint)
        self.body = body

    def offer(self, board: Board, given: Any) -> None:
        board.flip()

    def take(self, board: Board, meet: Meet, deadline: Deadline, given: Any) -> None:
        self.body(deadline, board.counts())


class Barrier(BoardCall):
    """Nothing but the comparison."""

    def offer(self, board: Board, given: Any) -> None:
        board.flip()

    def take(self, board: Board, meet: Meet, deadline: Deadline, given: Any) -> None:
        pass


def flat(array: Array) -> Array:
    """Return a view of one dimension."""
    return array if array.ndim == 1 else array.reshape(-1)


@cache
def _salt(algorithm: str) -> int:
    """Return what tells one algorithm from another: ranks that differ in it must not go on."""
    return int.from_bytes(algorithm.encode()[:8].ljust(8, b"\0"), "little")
