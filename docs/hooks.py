"""What the site's build adds to the theme: the version, sizes of pictures, cards, a name of the search for readers."""

from __future__ import annotations

import itertools
import re
import struct
from pathlib import Path
from typing import Any

VERSION = Path(__file__).parents[1] / "core/rankwise/basics/version.py"
IMAGES = Path(__file__).parent / "images"
#: The room for a table on a telephone, and what a column and a letter of its longest word take of it.
NARROW_PX, COLUMN_PX, LETTER_PX = 343, 22.0, 7.0
#: The room on a wide screen, and the letters of a word for which a telephone has none.
WIDE_PX, LONGEST = 600, 40
#: Where a long name may be broken.
PART = re.compile(r"(?<=\w[/._(=,])(?=\S)")
CELL = re.compile(r"<(t[hd])[^>]*>(.*?)</\1>", re.DOTALL)


def on_config(config: Any) -> Any:
    """Show the version in the title and at the foot of every page."""
    found = re.search(r'__version__ = "(.+)"', VERSION.read_text())
    assert found is not None
    config.site_name = f"rankwise {found[1]}"
    config.copyright = f"rankwise {found[1]}, by {config.copyright}"
    return config


def on_page_content(html: str, **_: Any) -> str:
    """Say how large each picture is, so that nothing moves when it comes, and have it fetched when it is looked at.

    A table that is too wide for a narrow screen becomes cards there; one that is too wide for any has its names broken.
    """
    html = re.sub(r'<img (?=[^>]*src="[^"]*\bimages/([\w./-]+))(?![^>]*width=)', sized, html)
    return re.sub(r"<table>.*?</table>", table, html, flags=re.DOTALL)


def table(found: re.Match[str]) -> str:
    """Return a table, within a mark if its rows are better cards where there is little room."""
    text = found[0]
    heads, *rows = ([plain(cell) for _, cell in CELL.findall(row)] for row in text.split("</tr>")[:-1])
    longest = [max(map(longest_word, column), default=0) for column in zip(*rows, strict=False)]
    width_px = sum(COLUMN_PX + LETTER_PX * letters for letters in longest)
    if width_px > WIDE_PX or max(longest, default=0) > LONGEST:
        text = re.sub(r"(?<=<code>)[^<]{20,}(?=</code>)", lambda name: PART.sub("<wbr>", name[0]), text)
    cells = [cell for row in rows for cell in row]
    is_figures = sum(cell[:1].isdigit() for cell in cells) > len(cells) / 2
    if width_px <= NARROW_PX or is_figures or 'class="moves"' in text:
        return text
    labels = itertools.cycle(heads)
    labelled = re.sub("<td", lambda _: f'<td data-label="{label}"' if (label := next(labels)) else "<td", text)
    return f'<div class="stacked">{labelled}</div>'


def longest_word(cell: str) -> int:
    """Return the letters of the longest word of a cell."""
    return max(map(len, cell.split()), default=0)


def plain(cell: str) -> str:
    """Return the words of a cell."""
    return re.sub(r"<[^>]+>", "", cell).strip()


def sized(found: re.Match[str]) -> str:
    """Return the beginning of a picture's tag with its size."""
    data = (IMAGES / found[1]).read_bytes()
    if data.startswith(b"\x89PNG"):
        width, height = struct.unpack(">II", data[16:24])
    else:
        box = re.search(rb'viewBox="0 0 ([\d.]+) ([\d.]+)"', data)
        assert box is not None, found[1]
        width, height = (round(float(side)) for side in box.groups())
    return f'<img width="{width}" height="{height}" loading="lazy" '


def on_post_page(output: str, **_: Any) -> str:
    """Name the dialog of the search, for screen readers."""
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )
