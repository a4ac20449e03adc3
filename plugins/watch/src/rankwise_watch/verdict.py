"""Errors that travel, and the log of verdicts: what has ended which groups, in one order for all ranks.

The rank that notices a failure writes it at the first free place of the log. All read the log from its beginning, so
that the first verdict about a group is the error of all its members, whatever each of them has seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from rankwise.errors import (
    DistError,
    PeerDiedError,
    ProtocolError,
)
from rankwise.observing import Store, pack_error, unpack_error

#: What an entry begins with that is no verdict but a question: no verdict's JSON does.
_QUESTION = b"?"


class Verdict(NamedTuple):
    """What has ended a group, or, with an empty name, all groups of a rank that has died.

    Attributes:
        group: The group's name, or nothing.
        error: Why.
        is_certain: A process has ended, and its rank is not merely silent: what it had done by then still counts.
    """

    group: str
    error: DistError
    is_certain: bool = False

    def covers(self, group: str, ranks: tuple[int, ...]) -> bool:
        """Tell whether it ends a group."""
        if self.group or not isinstance(self.error, PeerDiedError):
            return self.group == group
        return self.error.rank in ranks


def ask(store: Store, question: str) -> None:
    """Write a question into the log that all ranks read, as one who is none of them."""
    number = 0
    while store.compare_set(f"verdict/{number}", "", _QUESTION + question.encode()) != _QUESTION + question.encode():
        number += 1


def _nobody_answers(question: str) -> None:
    """Leave a question unanswered."""


class Log:
    """One rank's reading of the log.

    Args:
        store: Where it is.
        rank: This rank.
        heard: Called with each verdict, in order, once.
        asked: Called with what somebody who looks at the job has written there, see `ask`.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        heard: Callable[[Verdict], object],
        asked: Callable[[str], object] = _nobody_answers,
    ) -> None:
        self._store, self._rank, self._heard, self._asked = store, rank, heard, asked
        self._next = 0

    def settle(self, mine: Verdict, group: str, ranks: tuple[int, ...]) -> DistError:
        """Return the first verdict's error about a group, which is this rank's own if there is none so far.

        Raises:
            DistError: The store cannot be asked.
        """
        text = json.dumps([mine.group, pack_error(mine.error, self._rank), mine.is_certain]).encode()
        while True:
            found = self._store.compare_set(self._key(), "", text)
            if found == text:
                self._take(mine)
                return mine.error
            verdict = self._hear(found)
            if verdict is not None and verdict.covers(group, ranks):
                return verdict.error

    def catch_up(self) -> None:
        """Read what others have written meanwhile.

        Raises:
            DistError: The store cannot be asked.
        """
        while self._store.check([self._key()]):
            self._hear(self._store.get(self._key(), timeout=0))

    @property
    def next_key(self) -> str:
        """Where the next entry will be."""
        return self._key()

    @property
    def count(self) -> int:
        """How many entries have been heard."""
        return self._next

    def take(self, entry: bytes | None) -> None:
        """Hear the next entry if somebody has read it there, and those behind it.

        Raises:
            DistError: The store cannot be asked.
        """
        if entry is not None:
            self._hear(entry)
            self.catch_up()

    def _hear(self, found: bytes) -> Verdict | None:
        """Take in one entry, and return it if it is a verdict."""
        if found.startswith(_QUESTION):
            self._next += 1
            self._asked(found[len(_QUESTION) :].decode("utf-8", "replace"))
            return None
        verdict = self._read(found)
        self._take(verdict)
        return verdict

    def _key(self) -> str:
        return f"verdict/{self._next}"

    def _read(self, found: bytes) -> Verdict:
        try:
            group, content, is_certain = json.loads(found)
            return Verdict(str(group), unpack_error(content), bool(is_certain))
        except (ValueError, TypeError, ProtocolError):
            return Verdict("", ProtocolError("a verdict in the store is malformed"))

    def _take(self, verdict: Verdict) -> None:
        self._next += 1
        self._heard(verdict)
