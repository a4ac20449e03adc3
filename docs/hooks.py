"""What the site's build adds to the theme: the version, and a name of the search for screen readers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

VERSION = Path(__file__).parents[1] / "core/rankwise/basics/version.py"


def on_config(config: Any) -> Any:
    """Show the version in the title and at the foot of every page."""
    found = re.search(r'__version__ = "(.+)"', VERSION.read_text())
    assert found is not None
    config.site_name = f"rankwise {found[1]}"
    config.copyright = f"rankwise {found[1]}, by {config.copyright}"
    return config


def on_post_page(output: str, **_: Any) -> str:
    """Name the dialog of the search, for screen readers."""
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )
