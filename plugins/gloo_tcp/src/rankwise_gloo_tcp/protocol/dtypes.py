"""The dtypes of one group's messages: marks in headers, and names for errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankwise.backends import RAW, dtype_mark, dtype_text, is_known, known_dtype

#: How many names a rank learns from its peers at the most.
_MOST_NAMES = 1024


class Dtypes:
    """The dtypes that this rank has met. Names of unusual ones are sent ahead of the first message to each peer."""

    __slots__ = ("_introduced", "_marks", "_names", "unusual")

    def __init__(self) -> None:
        self._marks: dict[np.dtype[Any], int] = {}
        self._names: dict[int, str] = {}
        self._introduced: dict[tuple[int, int], None] = {}
        #: Whether any is unusual, as hardly ever.
        self.unusual = False

    def mark(self, dtype: np.dtype[Any]) -> int:
        """Return the mark of a dtype."""
        found = self._marks.get(dtype)
        return self._meet(dtype) if found is None else found

    def wanted(self, dtype: np.dtype[Any]) -> int:
        """Return the mark that messages must have for a receive of a dtype; 0 where any will do."""
        mark = self.mark(dtype)
        return 0 if mark == RAW else mark

    def accepts(self, wanted: int, have: int) -> bool:
        """Tell whether a receive takes a message: of its own dtype, or any as plain bytes."""
        return wanted in (0, RAW, have) or not have

    def name(self, mark: int) -> str:
        """Return the name of a dtype."""
        return known_dtype(mark) or self._names.get(mark, "another dtype")

    def introduction(self, to: int, mark: int) -> bytes:
        """Return the name that a peer must hear before it gets a message of this dtype; empty if it knows it."""
        if not self.unusual or mark not in self._names or (to, mark) in self._introduced:
            return b""
        self._introduced[to, mark] = None
        return self._names[mark].encode()

    def learn(self, mark: int, name: bytes) -> None:
        """Hear a name from a peer."""
        if len(self._names) < _MOST_NAMES:
            self._names.setdefault(mark, name.decode("ascii", "replace"))

    def _meet(self, dtype: np.dtype[Any]) -> int:
        mark = self._marks[dtype] = dtype_mark(dtype)
        if not is_known(dtype):
            self._names[mark] = dtype_text(dtype)
            self.unusual = True
        return mark
