"""In a checkout compiled parts are used only if they were built of the sources that are there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests import fresh
from tests.by_reference import call
from tests.processes import environment

PATIENCE_S = 60.0
SOURCE = Path(__file__).parents[3] / "plugins" / "native"

native = pytest.importorskip("rankwise_native._native")


@pytest.mark.parametrize("changed", [False, True])
def test_what_was_built_of_other_sources_is_refused(tmp_path: Path, changed: bool) -> None:
    package = tmp_path / "src" / "rankwise_native"
    package.mkdir(parents=True)
    shutil.copy(SOURCE / "src" / "rankwise_native" / "__init__.py", package)
    shutil.copy(native.__file__, package)
    shutil.copytree(SOURCE / "csrc", tmp_path / "csrc")
    if changed:
        header = tmp_path / "csrc" / "rings.h"
        header.write_text(header.read_text() + "\n")
    said = call(fresh.compiled_parts, timeout_s=PATIENCE_S, env=environment(package.parent))
    expected = f"it was built of other sources than those in {tmp_path / 'csrc'}" if changed else str(package)
    assert expected in said
