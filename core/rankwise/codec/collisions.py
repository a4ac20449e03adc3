"""Keys that collide: a bound on the time that they take, which in a dict or set grows as the square of their number."""

from __future__ import annotations

from typing import Any

__all__ = ["Collisions"]

#: So many comparisons of colliding keys take a second, where they are slow, as those of fractions are.
_MOST_COMPARISONS = 1 << 20

#: Types whose hashes nobody can make collide in number: those of strings are secret, and these numbers have few values
#: for each hash. An int is one of them while it has 64 bits.
_SAFE = frozenset((str, bytes, int, float, bool, type(None)))
_WIDE = 1 << 63


class Collisions:
    """Counts what the keys of one object cost that have equal hashes."""

    __slots__ = ("comparisons",)

    def __init__(self) -> None:
        self.comparisons = 0

    def note(self, key: Any, seen: dict[int, int]) -> bool:
        """Count a key of a container; tell whether it is still within bounds.

        Args:
            key: The key, or member of a set.
            seen: For this container, how many keys have each hash; empty at first.

        Raises:
            TypeError: The key cannot be one.
        """
        if type(key) in _SAFE and (type(key) is not int or -_WIDE <= key < _WIDE):
            return True
        mark = hash(key)
        before = seen.get(mark, 0)
        seen[mark] = before + 1
        self.comparisons += before
        return self.comparisons <= _MOST_COMPARISONS
