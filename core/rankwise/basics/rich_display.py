"""How a notebook shows a value: as a small table in HTML. Imported when a notebook asks."""

from __future__ import annotations

from collections.abc import Iterable


def escape(text: str) -> str:
    """Return a text as HTML shows it."""
    import html  # whose tables are long

    return html.escape(text)


def facts(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Return a table of names and values under a title."""
    lines = (f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows)
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table with a head under a title."""
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = ("".join(f"<td>{escape(str(value))}</td>" for value in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><caption>{escape(title)}</caption><tr>{top}</tr>{body}</table>"
