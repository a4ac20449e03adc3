"""Compiled parts that are missing, of another version, or broken are done without, and doctor says so in a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.by_reference import call
from tests.processes import environment

from rankwise.basics import native
from rankwise.basics.native import API_VERSION
from rankwise.basics.recording import make_recorder
from rankwise.basics.version import __version__
from rankwise_launch.checks import _native

PATIENCE_S = 60.0

#: What stands where the compiled package is looked for; what is said of it; and what would help.
AGAIN = "pip install --upgrade --force-reinstall --no-cache-dir rankwise-native"
BUILT_FOR = (
    f"rankwise-native {__version__} is built for version {{}} of what it shares with rankwise, "
    f"and this is version {API_VERSION}"
)
OTHERS = {
    "older": (
        f"API_VERSION, __version__ = {API_VERSION - 1}, {__version__!r}",
        *(BUILT_FOR.format(API_VERSION - 1), AGAIN),
    ),
    "of no version": (f"__version__ = {__version__!r}", BUILT_FOR.format(None), AGAIN),
    "of another MAJOR.MINOR": (
        f"API_VERSION, __version__ = {API_VERSION}, '0.99.3'",
        *(f"rankwise-native 0.99.3 has another MAJOR.MINOR than rankwise {__version__}", AGAIN),
    ),
    "not built": (
        "import rankwise_native._native",
        *("rankwise-native cannot be loaded: No module named 'rankwise_native._native'", AGAIN),
    ),
    "missing": (
        "raise ModuleNotFoundError('No module named rankwise_native', name='rankwise_native')",
        "rankwise-native is not installed",
        "pip install rankwise-native",
    ),
}


def what_is_said() -> tuple[object, str, str]:
    """Return what is known of the compiled parts, and what the doctor says of them."""
    make_recorder()
    (finding,) = _native()
    return native.state(), finding.text, finding.remedy


@pytest.mark.parametrize("other", OTHERS)
def test_what_does_not_fit_is_done_without_and_said_in_one_line(tmp_path: Path, other: str) -> None:
    source, said, remedy = OTHERS[other]
    package = tmp_path / "rankwise_native"
    package.mkdir()
    (package / "__init__.py").write_text(source + "\n")
    env = environment(tmp_path)
    env.pop("RANKWISE_NATIVE", None)
    state, finding, told = call(what_is_said, timeout_s=PATIENCE_S, env=env)
    assert state == (False, said)
    assert finding.startswith(f"{said}; with them ")
    assert told == remedy
