"""What the site's build looks up in the sources: the version."""

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
