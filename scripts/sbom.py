"""Write what a release is made of, as CycloneDX 1.6: python scripts/sbom.py DIST, which holds its wheels and archives

The bill of materials is `rankwise.cdx.json` beside them: each distribution with its licence, its files with their
hashes, libraries that a wheel has taken along, and what the distributions require. It has the same bytes each time for
the same files: its number follows from what it says, its day is SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import uuid
import zipfile
from collections.abc import Iterable
from datetime import datetime, timezone
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

#: What the form calls the addresses that a distribution names.
ADDRESSES = {
    "Source": "vcs",
    "Documentation": "documentation",
    "Issues": "issue-tracker",
    "Changelog": "release-notes",
    "Security": "security-contact",
}


def metadata_of(wheel: Path) -> Message:
    """Return what a wheel says of itself."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
        return Parser().parsestr(archive.read(name).decode())


def file_component(name: str, data: bytes) -> dict[str, Any]:
    """Describe a file by its name and hash."""
    return {"type": "file", "name": name, "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}]}


def taken_along(wheel: Path) -> list[dict[str, Any]]:
    """Describe the libraries of others that a repaired wheel holds, in the folder where auditwheel puts them."""
    with zipfile.ZipFile(wheel) as archive:
        names = sorted(name for name in archive.namelist() if re.match(r"[^/]+\.libs/.", name))
        return [file_component(f"{wheel.name}/{name}", archive.read(name)) for name in names]


def purl(name: str, version: str = "") -> str:
    """Return the address of a package of the Python index, as SBOMs write it."""
    return f"pkg:pypi/{canonicalize_name(name)}" + (f"@{version}" if version else "")


def distribution(metadata: Message, files: list[Path]) -> dict[str, Any]:
    """Describe one of our distributions with its files."""
    reference = purl(metadata["Name"], metadata["Version"])
    bundled = [library for path in files if path.suffix == ".whl" for library in taken_along(path)]
    return {
        "type": "library",
        "bom-ref": reference,
        "name": metadata["Name"],
        "version": metadata["Version"],
        "description": metadata["Summary"],
        "licenses": [{"expression": metadata["License-Expression"] or metadata["License"]}],
        "purl": reference,
        "components": [*(file_component(path.name, path.read_bytes()) for path in files), *bundled],
    }


def required(wishes: Iterable[tuple[str, Requirement]]) -> list[dict[str, Any]]:
    """Describe what our distributions require of others: by whom, and in which versions."""
    by_name: dict[str, list[tuple[str, Requirement]]] = {}
    for whose, wish in wishes:
        by_name.setdefault(canonicalize_name(wish.name), []).append((whose, wish))
    return [
        {
            "type": "library",
            "bom-ref": purl(name),
            "name": name,
            "scope": "optional" if all("extra ==" in str(wish.marker) for _, wish in told) else "required",
            "purl": purl(name),
            "properties": [{"name": "rankwise:required-by", "value": f"{whose}: {wish}"} for whose, wish in told],
        }
        for name, told in sorted(by_name.items())
    ]


def addresses(metadata: Message) -> list[dict[str, str]]:
    """Return where the project is at home."""
    told = (str(line).split(", ", 1) for line in metadata.get_all("Project-URL", []))
    return [{"type": ADDRESSES[label], "url": url} for label, url in sorted(told) if label in ADDRESSES]


def bill(folder: Path, age: int) -> dict[str, Any]:
    """Return the bill of materials of the wheels and archives in a folder."""
    files: dict[str, list[Path]] = {}
    for path in sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")]):
        files.setdefault(path.name.partition("-")[0], []).append(path)
    wheels = [next(path for path in paths if path.suffix == ".whl") for _, paths in sorted(files.items())]
    told = [metadata_of(wheel) for wheel in wheels]
    ours = {canonicalize_name(each["Name"]): purl(each["Name"], each["Version"]) for each in told}
    wishes = {each["Name"]: [Requirement(line) for line in each.get_all("Requires-Dist", [])] for each in told}
    core = next(each for each in told if each["Name"] == "rankwise")
    abroad = [
        (whose, wish) for whose, all_of in wishes.items() for wish in all_of if canonicalize_name(wish.name) not in ours
    ]
    depends = [{"ref": "release", "dependsOn": sorted(ours.values())}]
    for whose, all_of in wishes.items():
        names = {canonicalize_name(wish.name) for wish in all_of} - {canonicalize_name(whose)}
        on = sorted(ours.get(name, purl(name)) for name in names)
        depends.append({"ref": ours[canonicalize_name(whose)], "dependsOn": on})
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(age, timezone.utc).isoformat(),
            "component": {
                "type": "library",
                "bom-ref": "release",
                "name": "rankwise",
                "version": core["Version"],
                "externalReferences": addresses(core),
            },
        },
        "components": [
            *(
                distribution(each, files[wheel.name.partition("-")[0]])
                for each, wheel in zip(told, wheels, strict=True)
            ),
            *required(abroad),
        ],
        "dependencies": depends,
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {"serialNumber": f"urn:uuid:{number}", **content}


def main(folder: Path) -> None:
    """Write the bill of materials of a folder into it."""
    content = bill(folder, int(os.environ["SOURCE_DATE_EPOCH"]))
    path = folder / "rankwise.cdx.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path} (CycloneDX 1.6)")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
