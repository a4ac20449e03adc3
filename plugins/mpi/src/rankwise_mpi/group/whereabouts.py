"""Where the ranks of a group were last seen waiting, so that a time-out can say who is missing.

A rank that has waited for some time in a collective notes it in the store, without waiting for an answer. A rank that
times out looks at the notes of the others: those that have noted this collective, or a later one, are there. A rank
that destroys the group notes how many collectives it has made; a rank that waits longer asks for that now and then.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from rankwise.backends import Context, PrefixStore, Store
from rankwise_mpi.process.store import MpiStore

#: How long a rank waits before it notes where: hardly any call of a program that runs well does.
NOTE_AFTER_S = 0.01

_LOOK_S = 1.0
#: How seldom a rank that waits asks who has destroyed the group: at least this, and so much more for each member, as
#: all of them may be asking the same rank.
_PAUSE_S, _PAUSE_A_MEMBER_S = 0.1, 0.005
_MOST_NAMED = 16


class Whereabouts:
    """The notes of one group.

    Args:
        context: The group. Notes are left where it is made over MPI; they are no reason to wait for another store.
    """

    def __init__(self, context: Context) -> None:
        self._store, self._prefix = _place(context.store)
        self._rank = context.global_ranks[context.rank]
        self._global_ranks = context.global_ranks
        #: How many collectives those members have made that have destroyed the group, as far as is known.
        self._made: dict[int, int] = {}
        #: When to ask for that again, and what gives the answer to a question that is under way.
        self._ask_at = 0.0
        self._answer: Callable[[], list[bytes | None] | None] | None = None

    def note(self, number: int, what: str) -> None:
        """Note that this rank is waiting in the group's collective of that number."""
        if self._store is not None:
            self._store.post(f"{self._prefix}/{self._rank}", f"{number} {what}".encode())

    def note_end(self, made: int) -> None:
        """Note that this rank has destroyed the group, and how many collectives it has made."""
        if self._store is not None:
            self._store.post(f"{self._prefix}/{self._rank}/end", str(made).encode())

    def gone_before(self, number: int) -> list[int]:
        """Return the members that have destroyed the group before the collective of that number, as far as is known.

        Called again and again while this rank waits; it asks now and then, and waits for no answer. Of two threads
        that ask together one may take the other's answer, which is as good.
        """
        answer = self._answer
        if answer is not None:
            notes = answer()
            if notes is not None:
                self._answer = None
                self._made = {at: int(note) for at, note in enumerate(notes) if note is not None}
        elif self._store is not None and monotonic() >= self._ask_at:
            self._ask_at = monotonic() + _PAUSE_S + _PAUSE_A_MEMBER_S * len(self._global_ranks)
            self._answer = self._store.ask_for([f"{self._prefix}/{rank}/end" for rank in self._global_ranks])
        return [at for at, made in self._made.items() if made < number]

    def missing(self, number: int) -> str:
        """Return in words who has not come to the collective of that number, as far as is known."""
        others = [rank for rank in self._global_ranks if rank != self._rank]
        notes = None
        if self._store is not None:
            notes = self._store.look([f"{self._prefix}/{rank}" for rank in others], _LOOK_S)
        if notes is None:
            return "MPI does not say which of the ranks is missing"
        seen = {rank: note.decode().partition(" ") for rank, note in zip(others, notes, strict=True) if note}
        absent = [rank for rank in others if rank not in seen or int(seen[rank][0]) < number]
        if not absent:
            return "all ranks were seen in it"
        told = ", ".join(_words(rank, *seen.get(rank, ("", "", ""))) for rank in absent[:_MOST_NAMED])
        more = f" and {len(absent) - _MOST_NAMED} more" if len(absent) > _MOST_NAMED else ""
        return f"not seen in it: {told}{more}"


def _place(store: Store | None) -> tuple[MpiStore | None, str]:
    """Return the store over MPI in which a group's store lies, if it does, and the place of its notes there."""
    path = ["at"]
    while isinstance(store, PrefixStore):
        path.insert(0, store.prefix)
        store = store.underlying_store
    return (store if isinstance(store, MpiStore) else None), "/".join(path)


def _words(rank: int, number: str, _: str, what: str) -> str:
    return f"rank {rank}" + (f" (last seen waiting in {what} #{number})" if number else "")
