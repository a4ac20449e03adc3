"""A scratch environment with the core's wheel and real plugin distributions, good and bad, installed together."""

import shutil
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{distribution}"
version = "{version}"

[project.entry-points."rankwise.backends"]
{backend} = "{module}"

[tool.hatch.build.targets.wheel]
packages = ["{module}"]
"""

PLUGIN = """
from rankwise import BackendSpec
from rankwise.backends import Capabilities, Device, native
from rankwise.backends.hookspecs import hookimpl

@hookimpl
def rankwise_backend():
    table = Capabilities("{backend}", {{"cpu": Device(native("send", "recv", "all_reduce"))}})
    return BackendSpec("{backend}", api_version={api_version}, capabilities=table, create=print)
"""


def run(*command, cwd=None, **kwargs):
    """Run a command, and show what it printed if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, **kwargs)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(autouse=True, scope="session")
def as_users_have_it():
    """Take away what the project's own scripts ask of their builds, and users' installations do not."""
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("RANKWISE_NATIVE_BUILD", raising=False)
        yield


def write_plugin(folder, distribution, version, backend, source):
    """Write a plugin's project and return its folder."""
    module = distribution.replace("-", "_")
    (folder / distribution / module).mkdir(parents=True)
    project = PROJECT.format(distribution=distribution, version=version, backend=backend, module=module)
    (folder / distribution / "pyproject.toml").write_text(project)
    (folder / distribution / module / "__init__.py").write_text(textwrap.dedent(source))
    return folder / distribution


def native_source(folder):
    """Copy the source of the compiled parts, without what has been built of it, and return where it is."""
    ignored = shutil.ignore_patterns("build", "*.so", "*.egg-info", "__pycache__", "not_built.txt")
    return str(shutil.copytree(ROOT / "plugins" / "native", folder / "native", ignore=ignored))


class Scratch:
    """A virtual environment that knows nothing of the source tree."""

    def __init__(self, folder):
        self.folder = folder
        venv.create(folder / "env", with_pip=False)  # to put pip there takes seconds: ours serves
        self.interpreter = str(folder / "env" / "bin" / "python")

    def pip(self, *arguments, **settings):
        pip = (sys.executable, "-m", "pip", "--python", self.interpreter, "--disable-pip-version-check")
        run(*pip, "install", "--quiet", *arguments, **settings)

    def python(self, *arguments):
        """Run Python in the environment, away from the source tree."""
        return run(self.interpreter, "-I", *arguments, cwd=self.folder)

    def run(self, code):
        return self.python("-c", textwrap.dedent(code))

    def pytest(self, *arguments):
        return self.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)


@pytest.fixture(scope="session")
def wheel_of(tmp_path_factory):
    """The path of each wheel by its distribution: the core, ours, the third-party example, and plugins made here."""
    from hatchling.build import build_wheel

    folder, sources = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("sources")
    good = PLUGIN.format(backend="good", api_version=1)
    projects = [
        ROOT,
        *(ROOT / "plugins" / name for name in ("local", "network", "stores", "launch", "watch", "testing", "gloo_tcp")),
        ROOT / "tests" / "third_party",
        write_plugin(sources, "rankwise-good", "1.2", "good", good),
        write_plugin(sources, "rankwise-broken", "0.3", "broken", "import a_library_that_is_not_there\n"),
        write_plugin(sources, "rankwise-future", "9.0", "future", PLUGIN.format(backend="future", api_version=99)),
        write_plugin(sources, "rankwise-twin-a", "1.0", "twin", PLUGIN.format(backend="twin", api_version=1)),
        write_plugin(sources, "rankwise-twin-b", "2.0", "twin", PLUGIN.format(backend="twin", api_version=1)),
        write_plugin(sources, "rankwise-liar", "1.0", "liar", good),
        write_plugin(sources, "rankwise-mute", "1.0", "mute", "x = 1\n"),
    ]
    with pytest.MonkeyPatch.context() as here:
        for project in projects:
            here.chdir(project)
            build_wheel(str(folder))  # what all front ends call, in one process for all
    return {path.name.partition("-")[0]: str(path) for path in folder.iterdir()}


@pytest.fixture(scope="session")
def core(wheel_of):
    """The wheels of the core and of what it requires of ours."""
    return [wheel_of["rankwise"]]


@pytest.fixture(scope="session")
def zoo(wheel_of, tmp_path_factory):
    """An environment with the core and all the plugins of the zoo, but none of our own backends."""
    scratch = Scratch(tmp_path_factory.mktemp("zoo"))
    scratch.pip(*(path for name, path in wheel_of.items() if name != "rankwise_gloo_tcp"))
    return scratch


@pytest.fixture
def scratch(tmp_path):
    """An environment with nothing in it."""
    return Scratch(tmp_path)
