"""Installs the simulated accelerator as a distribution of somebody else's, for the tests here alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rankwise.backends.registry import registry

POINTS = """[rankwise.devices]
quantum = quantum_sim.plugin:QUANTUM
{more}
[rankwise.backends]
entangled = quantum_sim.plugin
"""


def install(folder: Path, more: str = "") -> list[str]:
    """Make a folder hold the metadata of the distribution, and return what must be on the path."""
    info = folder / "quantum_sim-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: quantum-sim\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS.format(more=more))
    return [str(folder), str(Path(__file__).parent)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Have it on the path of this process, and forget afterwards what it has brought."""
    from rankwise.basics import devices

    with pytest.MonkeyPatch.context() as patch:
        path = install(tmp_path_factory.mktemp("installed"))
        for folder in path:
            patch.syspath_prepend(folder)
        _forget()
        yield path
    _forget()
    devices._loaded.pop("quantum", None)
    devices.kind_of_type.cache_clear()


def _forget() -> None:
    """Have gloo, which serves what devices there are, declare itself anew, and nobody know the other."""
    for name in ("gloo", "entangled"):
        registry._loaded.pop(name, None)
    registry.generation = object()
