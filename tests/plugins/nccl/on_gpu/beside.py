"""Makes a folder that has sources found as if they were installed, and what wheels hold.

Called by scripts/test-gpu: beside.py FOLDER WHEELS PLUGIN...
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).parents[4]


def main(arguments: Sequence[str]) -> None:
    """Fill the folder."""
    folder, wheels, *plugins = arguments
    for wheel in sorted(Path(wheels).glob("*.whl")):
        if find_spec({"pyzmq": "zmq"}.get(name := wheel.name.split("-")[0], name)) is None:
            zipfile.ZipFile(wheel).extractall(folder)
    for plugin in plugins:
        declared = tomllib.loads((ROOT / "plugins" / plugin / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        _found_by(Path(folder), declared)


def _found_by(folder: Path, declared: dict[str, Any]) -> None:
    """Have a distribution found by its entry points."""
    info = folder / f"{declared['name'].replace('-', '_')}-{declared['version']}.dist-info"
    info.mkdir()
    lines = [f"Metadata-Version: 2.1\nName: {declared['name']}\nVersion: {declared['version']}\n"]
    (info / "METADATA").write_text("".join(lines), encoding="utf-8")
    groups = declared.get("entry-points", {})
    told = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in groups.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(told), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
