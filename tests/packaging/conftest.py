"""A scratch environment with the core's wheel and real plugin distributions, good and bad, installed together."""

import shutil
import subprocess
import sys
import textwrap
import venv
from concurrent.futures import ThreadPoolExecutor
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
from rankwise.backends.capability import Capabilities, Device, native
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


def build_wheel(project, to):
    """Build a wheel with the build tools of this environment."""
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(to), str(project))


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
        self.python = str(folder / "env" / "bin" / "python")

    def pip(self, *arguments, **settings):
        pip = (sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check")
        run(*pip, "install", "--quiet", *arguments, **settings)

    def run(self, code):
        """Run a program in the environment, away from the source tree."""
        return run(self.python, "-I", "-c", textwrap.dedent(code), cwd=self.folder)

    def pytest(self, *arguments):
        """Run pytest in the environment, away from the source tree."""
        return run(self.python, "-I", "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, cwd=self.folder)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """The folder with the wheels of the core, the third-party example, and the plugins made here."""
    folder = tmp_path_factory.mktemp("wheels")
    sources = tmp_path_factory.mktemp("sources")
    good = PLUGIN.format(backend="good", api_version=1)
    projects = [
        ROOT,
        ROOT / "plugins" / "codec",
        ROOT / "plugins" / "stores",
        ROOT / "plugins" / "launch",
        ROOT / "plugins" / "watch",
        ROOT / "plugins" / "testing",
        ROOT / "tests" / "third_party",
        write_plugin(sources, "rankwise-good", "1.2", "good", good),
        write_plugin(sources, "rankwise-broken", "0.3", "broken", "import a_library_that_is_not_there\n"),
        write_plugin(sources, "rankwise-future", "9.0", "future", PLUGIN.format(backend="future", api_version=99)),
        write_plugin(sources, "rankwise-twin-a", "1.0", "twin", PLUGIN.format(backend="twin", api_version=1)),
        write_plugin(sources, "rankwise-twin-b", "2.0", "twin", PLUGIN.format(backend="twin", api_version=1)),
        write_plugin(sources, "rankwise-liar", "1.0", "liar", good),
        write_plugin(sources, "rankwise-mute", "1.0", "mute", "x = 1\n"),
    ]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda project: build_wheel(project, folder), projects))
    return folder


@pytest.fixture(scope="session")
def core(wheels):
    """The wheels of the core and of what it requires of ours."""
    return [str(path) for name in ("rankwise", "rankwise_codec") for path in wheels.glob(f"{name}-0*.whl")]


@pytest.fixture(scope="session")
def zoo(wheels, tmp_path_factory):
    """An environment with the core and all the plugins of the zoo."""
    scratch = Scratch(tmp_path_factory.mktemp("zoo"))
    scratch.pip(*map(str, wheels.glob("rankwise*.whl")))
    return scratch


@pytest.fixture
def scratch(tmp_path):
    """An environment with nothing in it."""
    return Scratch(tmp_path)
