"""What the site's build adds to the theme: the version, sizes of pictures, and a name of the search for readers."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

VERSION = Path(__file__).parents[1] / "core/rankwise/basics/version.py"
IMAGES = Path(__file__).parent / "images"


def on_config(config: Any) -> Any:
    """Show the version in the title and at the foot of every page."""
    found = re.search(r'__version__ = "(.+)"', VERSION.read_text())
    assert found is not None
    config.site_name = f"rankwise {found[1]}"
    config.copyright = f"rankwise {found[1]}, by {config.copyright}"
    return config


def on_page_content(html: str, **_: Any) -> str:
    """Say how large each picture is, so that nothing moves when it comes, and have it fetched when it is looked at."""
    return re.sub(r'<img (?=[^>]*src="[^"]*\bimages/([\w./-]+))(?![^>]*width=)', sized, html)


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
