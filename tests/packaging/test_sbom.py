"""The bill of materials of a release: by the schema of its form, complete, and the same each time."""

import hashlib
import json
import runpy
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement
from tests.packaging.conftest import ROOT

PATIENCE_S = 60.0
SBOM = runpy.run_path(str(ROOT / "scripts/sbom.py"))
NATIVE = "rankwise_native-0.1.0-cp311-cp311-manylinux_2_28_x86_64.whl"
METADATA = """Metadata-Version: 2.4
Name: rankwise-native
Version: 0.1.0
Summary: Compiled.
License: BSD-3-Clause
Requires-Dist: rankwise~=0.1.0
Requires-Dist: numpy>=1.24
"""


@pytest.fixture(scope="module")
def dist(wheel_of, tmp_path_factory):
    """The wheels of some distributions, and one that was repaired: it has taken a library of another project along."""
    folder = tmp_path_factory.mktemp("dist")
    for name in ("rankwise", "rankwise_gloo_tcp", "rankwise_network", "rankwise_stores", "rankwise_testing"):
        shutil.copy(wheel_of[name], folder)
    with zipfile.ZipFile(folder / NATIVE, "w") as archive:
        archive.writestr("rankwise_native-0.1.0.dist-info/METADATA", METADATA)
        archive.writestr("rankwise_native.libs/libother-1.so", b"theirs")
    (folder / "rankwise-0.1.0.tar.gz").write_bytes(b"sources")
    return folder


@pytest.fixture(scope="module")
def content(dist):
    return SBOM["bill"](dist, 1700000000)


def components(content):
    return {each["name"]: each for each in content["components"]}


def test_its_form_is_that_of_the_schema(content):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    judge = JsonStrictValidator(SchemaVersion.V1_6)
    assert judge.validate_str(json.dumps(content)) is None
    assert judge.validate_str(json.dumps({**content, "version": "one"})) is not None


def test_it_has_every_file_with_its_hash_and_what_a_wheel_has_taken_along(dist, content):
    files = {file["name"]: file["hashes"] for each in content["components"] for file in each.get("components", [])}
    assert (
        files.pop(f"{NATIVE}/rankwise_native.libs/libother-1.so")[0]["content"] == hashlib.sha256(b"theirs").hexdigest()
    )
    assert files == {
        path.name: [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}]
        for path in dist.iterdir()
    }


def test_it_has_every_distribution_with_licence_and_requirements(content):
    told, depends = components(content), {each["ref"]: each["dependsOn"] for each in content["dependencies"]}
    ours = [each for each in told.values() if "version" in each]
    assert len(ours) == 6
    assert all(each["licenses"] == [{"expression": "BSD-3-Clause"}] for each in ours)
    assert depends["release"] == sorted(each["bom-ref"] for each in ours)
    wanted = {f"pkg:pypi/{Requirement(line).name}" for line in requires("rankwise")} - {"pkg:pypi/rankwise"}
    assert {reference.partition("@")[0] for reference in depends["pkg:pypi/rankwise@0.1.0"]} == wanted
    assert "pkg:pypi/rankwise-native@0.1.0" in depends["pkg:pypi/rankwise@0.1.0"], "of ours it names the version"
    references = {"release", *(each["bom-ref"] for each in told.values())}
    assert {name for names in depends.values() for name in names} <= references


def test_what_is_required_only_by_an_extra_is_optional(content):
    told = components(content)
    assert (told["numpy"]["scope"], told["rich"]["scope"]) == ("required", "optional")
    assert {"name": "rankwise:required-by", "value": "rankwise: numpy>=1.24"} in told["numpy"]["properties"]


def test_it_has_the_same_bytes_each_time_and_another_number_for_other_files(dist, tmp_path):
    command = (sys.executable, str(ROOT / "scripts/sbom.py"))
    written = []
    for name in ("first", "again", "other"):
        folder = shutil.copytree(dist, tmp_path / name)
        if name == "other":
            (folder / "rankwise-0.1.0.tar.gz").write_bytes(b"other sources")
        variables = {"SOURCE_DATE_EPOCH": "1700000000", "PATH": "/usr/bin:/bin", "PYTHONHASHSEED": str(len(written))}
        subprocess.run([*command, str(folder)], env=variables, check=True, timeout=PATIENCE_S, capture_output=True)
        written.append((folder / "rankwise.cdx.json").read_text())
    assert written[0] == written[1]
    numbers = [json.loads(text)["serialNumber"] for text in written]
    assert numbers[0] != numbers[2]
