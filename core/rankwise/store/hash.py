"""`HashStore`: a store for the threads of one process."""

from __future__ import annotations

import threading
from typing import Any

from rankwise.deadline import Deadline, Timeout
from rankwise.store.base import DEFAULT_TIMEOUT_S, Store
from rankwise.store.table import CHANGES, Table, Wait

__all__ = ["HashStore"]


class HashStore(Store):
    """A store in this process's memory."""

    def __init__(self, timeout: Timeout = DEFAULT_TIMEOUT_S) -> None:
        super().__init__(timeout)
        self._table = Table()
        self._changed = threading.Condition()

    def __repr__(self) -> str:
        return "HashStore()"

    def _call(self, op: str, *args: Any, timeout_s: float = 0.0) -> Any:
        deadline = Deadline(timeout_s)
        with self._changed:
            while True:
                try:
                    answer = self._table.run(op, args)
                except Wait:
                    if deadline.expired():
                        raise
                    self._changed.wait(deadline.remaining())
                    continue
                if op in CHANGES:
                    self._changed.notify_all()
                return answer
