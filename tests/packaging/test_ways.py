"""Other ways to have it installed: editable, in a zip file, and exchanged for another version while a process runs."""

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.packaging.conftest import native_source

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 100
#: The distributions: where their source is, and the entry points of each.
PARTS = {
    "rankwise": ("core", ""),
    "rankwise_gloo_tcp": ("plugins/gloo_tcp/src", "[rankwise.backends]\ngloo = rankwise_gloo_tcp.plugin\n"),
    "rankwise_launch": (
        "plugins/launch/src",
        "[rankwise.commands]\nbackends = rankwise_launch.backends_command\nrun = rankwise_launch.run_command\n"
        "[rankwise.parts]\ncommand_line = rankwise_launch.commands:execute\n",
    ),
    "rankwise_local": ("plugins/local/src", ""),
    "rankwise_network": ("plugins/network/src", ""),
    "rankwise_stores": (
        "plugins/stores/src",
        "[rankwise.rendezvous]\nlauncher = rankwise_stores.schemes:launcher\n",
    ),
    "rankwise_watch": ("plugins/watch/src", "[rankwise.observers]\nwatch = rankwise_watch\n"),
    "rankwise_tools": ("plugins/tools/src", "[rankwise.commands]\nexplain = rankwise_tools.explain_command\n"),
}
#: What they need, which stays where it is.
NEEDED = ("numpy", "numpy.libs", "pluggy", "zmq", "pyzmq.libs", "msgpack")


@pytest.fixture
def needed(tmp_path):
    """A folder with what the core needs and nothing of ours."""
    packages = Path(importlib.util.find_spec("numpy").origin).parents[1]
    folder = tmp_path / "needed"
    folder.mkdir()
    for name in NEEDED:
        if (packages / name).exists():
            (folder / name).symlink_to(packages / name)
    return folder


def files():
    """Yield the name and content of each file of a site with the core, the launcher, the watch, gloo and the tools."""
    for name, (where, points) in PARTS.items():
        for path in sorted((ROOT / where / name).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(path.relative_to(ROOT / where)), path.read_bytes()
        info = f"{name}-0.1.0.dist-info"
        yield f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 0.1.0\n".encode()
        yield f"{info}/entry_points.txt", points.encode()


def python(needed, site, *arguments):
    """Run Python where only `site` and what the core needs can be imported."""
    path = os.pathsep.join([str(site), str(needed)])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RANKWISE_")}
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        env={**kept, "PYTHONPATH": path},
        cwd=needed,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_an_editable_installation_is_found_by_its_entry_points_and_runs(scratch, tmp_path):
    scratch.pip("hatchling>=1.21", "editables", "setuptools>=64", "wheel", "numpy")
    parts = [ROOT, *(ROOT / "plugins" / name for name in "network stores watch gloo_tcp".split())]
    parts.append(native_source(tmp_path))
    without = {**os.environ, "CC": "no-such-compiler"}  # which takes no time
    scratch.pip("--no-build-isolation", *(word for part in parts for word in ("-e", str(part))), env=without)
    said = scratch.run(
        """
        import numpy as np, rankwise as dist, rankwise_gloo_tcp
        dist.init_process_group("gloo", rank=0, world_size=1)
        array = np.ones(3)
        dist.all_reduce(array)
        dist.destroy_process_group()
        print(dist.__file__, rankwise_gloo_tcp.__file__, dist.availability("gloo").available, array.tolist(), sep="\\n")
        """
    )
    core, gloo, available, array = said.splitlines()
    assert Path(core).parent == ROOT / "core" / "rankwise"
    assert Path(gloo).parents[1] == ROOT / "plugins" / "gloo_tcp" / "src"
    assert (available, array) == ("True", "[1.0, 1.0, 1.0]")


PROGRAM = """
import sys
import numpy as np, rankwise as dist
assert ".zip" in dist.__file__, dist.__file__
dist.init_process_group("gloo", rank=0, world_size=1)
array = np.ones(3)
dist.all_reduce(array)
objects = [None]
dist.all_gather_object(objects, {"array": array})
assert dist.supports("all_reduce", "cpu", "float32") and dist.capabilities("gloo").supports("recv", "cpu")
dist.destroy_process_group()
print("it works")
"""


def test_it_runs_out_of_a_zip_file(needed, tmp_path):
    site = tmp_path / "site.zip"
    with zipfile.ZipFile(site, "w") as archive:
        for name, content in files():
            archive.writestr(name, content)
    done = python(needed, site, "-c", PROGRAM)
    assert (done.returncode, done.stdout) == (0, "it works\n"), done.stderr
    listed = python(needed, site, "-m", "rankwise", "backends")
    assert listed.returncode == 0, listed.stderr
    assert "rankwise-gloo-tcp 0.1.0" in listed.stdout
    explained = python(needed, site, "-m", "rankwise", "explain", "all_reduce", "--ranks", "4", "--bytes", "1KiB")
    assert explained.returncode == 0, explained.stderr


ALONE = """
import numpy as np, rankwise as dist
dist.init_process_group("gloo")
array = np.ones(3)
dist.all_reduce(array)
dist.destroy_process_group()
print(array.tolist())
"""


def test_a_job_runs_without_the_watch(needed, site, tmp_path):
    for path in site.glob("rankwise_watch*"):
        shutil.rmtree(path)
    program = tmp_path / "program.py"
    program.write_text(ALONE)
    done = python(needed, site, "-m", "rankwise", "run", "-n", "2", str(program))
    assert (done.returncode, done.stdout.count("[2.0, 2.0, 2.0]")) == (0, 2), done.stderr


#: Another gloo takes the place of the one that was there when the process began.
EXCHANGED = """
import pathlib, re, sys
import rankwise as dist
site = pathlib.Path(sys.argv[1])
plugin = site / "rankwise_gloo_tcp" / "plugin.py"
plugin.write_text(re.sub('core="[^"]*"', 'core="0.2"', plugin.read_text()))
(site / "rankwise_gloo_tcp-0.1.0.dist-info").rename(site / "rankwise_gloo_tcp-0.2.0.dist-info")
metadata = site / "rankwise_gloo_tcp-0.2.0.dist-info" / "METADATA"
metadata.write_text(metadata.read_text().replace("0.1.0", "0.2.0"))
try:
    dist.init_process_group("gloo", rank=0, world_size=1)
except dist.PluginError as error:
    print(error)
"""


@pytest.fixture
def site(tmp_path):
    """The folder where all is installed."""
    folder = tmp_path / "site"
    for name, content in files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_a_plugin_that_was_upgraded_meanwhile_is_refused_in_words(needed, site):
    done = python(needed, site, "-c", EXCHANGED, str(site))
    assert done.returncode == 0, done.stderr
    assert "backend 'gloo' of rankwise-gloo-tcp 0.2.0" in done.stdout
    assert "belongs to rankwise 0.2, and this process runs rankwise 0.1.0" in done.stdout
    assert "start anew if one was upgraded meanwhile" in done.stdout


def test_tools_of_another_core_are_refused_in_words(needed, site):
    package = site / "rankwise_tools" / "__init__.py"
    package.write_text(package.read_text().replace('"0.1"', '"0.2"'))
    done = python(needed, site, "-m", "rankwise", "explain", "all_reduce", "--ranks", "4", "--bytes", "1KiB")
    assert done.returncode != 0
    assert "rankwise-tools belongs to rankwise 0.2, and this process runs rankwise 0.1.0" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_kit_of_another_core_is_refused_in_words(needed, site):
    (site / "rankwise_testing").mkdir()
    source = ROOT / "plugins/testing/src/rankwise_testing"
    (site / "rankwise_testing" / "__init__.py").write_text((source / "__init__.py").read_text())
    (site / "rankwise_testing" / "belongs.py").write_text((source / "belongs.py").read_text().replace("0.1", "0.2"))
    done = python(needed, site, "-c", "import rankwise_testing")
    assert "rankwise-testing belongs to rankwise 0.2, and this process runs rankwise 0.1.0" in done.stderr
