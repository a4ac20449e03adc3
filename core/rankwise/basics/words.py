"""Words of messages to users."""

from __future__ import annotations

__all__ = ["with_article"]


def with_article(noun: str) -> str:
    """Return a noun with "a" or "an" before it."""
    return f"{'an' if noun[:1].lower() in tuple('aeiou') else 'a'} {noun}"
