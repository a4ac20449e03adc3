"""The version of the core, and the rule that what belongs to it has the same MAJOR.MINOR."""

from __future__ import annotations

from rankwise.errors import PluginError

__version__ = "0.1.0"


def series(version: str) -> str:
    """Return the MAJOR.MINOR of a version."""
    return ".".join(version.split(".")[:2])


def require_series(distribution: str, theirs: str) -> None:
    """Raise unless a distribution belongs to this core.

    Args:
        distribution: Its name, or another word for it.
        theirs: The version of rankwise that it belongs to, of which MAJOR.MINOR counts.

    Raises:
        PluginError: It belongs to another.
    """
    if series(theirs) != series(__version__):
        raise PluginError(
            f"{distribution} belongs to rankwise {series(theirs)}, and this process runs rankwise {__version__}; "
            "install the same MAJOR.MINOR of both, and start anew if one was upgraded meanwhile",
            f'pip install "{distribution}~={series(__version__)}.0"' if distribution.startswith("rankwise") else "",
        )
