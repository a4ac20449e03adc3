"""What `pip install` gives: extras that name real distributions, and pages that lead somewhere."""

import os
import re
from pathlib import Path

import pytest
from tests.packaging.conftest import native_source

ROOT = Path(__file__).parents[2]
KINDS = {".md", ".toml", ".yml", ".yaml", ".html", ".py", ".cff"}
PROJECTS = [ROOT, *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))]


def project(folder):
    """Return a project's table; Python 3.10 has no reader of TOML, and pip brings one."""
    try:
        import tomllib
    except ModuleNotFoundError:
        from pip._vendor import tomli as tomllib
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


TABLES = {table["name"]: table for table in map(project, PROJECTS)}
CORE = TABLES["rankwise"]
#: What pip installs together has one MAJOR.MINOR: they share more than is public.
SERIES = CORE["version"].rpartition(".")[0]


def test_each_extra_is_a_distribution_of_this_repository():
    extras = CORE["optional-dependencies"]
    for extra in ("gloo", "mpi", "nccl"):
        *beside, own = [name for name in extras[extra] if "native" not in name]
        assert beside == ([] if extra == "mpi" else ["rankwise-launch~=0.1.0", "rankwise-stores~=0.1.0"])
        assert list(TABLES[own.partition("~")[0]]["entry-points"]["rankwise.backends"]) == [extra]
    assert extras["gloo"][3:] == ["rankwise-native~=0.1.0; sys_platform == 'linux'"]
    assert extras["native"] == ["rankwise-native~=0.1.0"]
    assert extras["testing"] == ["rankwise-testing~=0.1.0"]
    assert extras["all"] == ["rankwise[cli,gloo,mpi,native,nccl]"]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_requirement_between_our_distributions_holds_the_minor_version(table):
    for requirement in sum(table.get("optional-dependencies", {}).values(), table["dependencies"]):
        name, rest = re.fullmatch(r"([\w-]+)(?:\[.*?\])?(.*)", requirement).groups()
        if name in TABLES and name != table["name"]:  # an extra of its own names others of its own
            assert rest.partition(";")[0] == f"~={SERIES}.0", requirement


@pytest.mark.parametrize(
    "plugin",
    [
        "elastic",
        "gloo_tcp",
        "launch",
        "local",
        "mpi",
        "nccl",
        "network",
        "ray",
        "stores",
        "testing",
        "tools",
        "torch",
        "watch",
    ],
)
def test_each_plugin_says_which_core_it_belongs_to(plugin):
    """As a literal, which a newer core cannot change."""
    sources = (ROOT / "plugins" / plugin / "src").rglob("*.py")
    said = re.findall(r'(?:core=|require_series\("rankwise-\w+", )"(.*?)"', "".join(s.read_text() for s in sources))
    assert said == [SERIES]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_distribution_says_where_it_is_at_home_and_what_it_runs_on(table):
    assert table["version"] == CORE["version"]
    assert table["urls"] | {"Documentation": ""} == CORE["urls"] | {"Documentation": ""}
    home = CORE["urls"]["Source"]
    for url in table["urls"].values():
        where = url.removeprefix(home).removeprefix("/blob/main/")
        assert where in ("", "/issues") or (ROOT / where).exists(), url
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(table["classifiers"]))
    assert pythons == ["3.10", "3.11", "3.12", "3.13", "3.14"]
    assert table["requires-python"] == f">={pythons[0]}"


def test_the_site_and_the_recipes_have_the_same_home_and_version():
    assert f"repo_url: {CORE['urls']['Source']}\n" in (ROOT / "mkdocs.yml").read_text()
    recipes = {path.parent.name: path.read_text() for path in ROOT.glob("packaging/conda/*/recipe.yaml")}
    assert recipes.keys() == TABLES.keys()
    for name, recipe in recipes.items():
        assert f'  version: "{CORE["version"]}"\n' in recipe
        assert f"  homepage: {CORE['urls']['Source']}\n" in recipe
        for requirement in TABLES[name]["dependencies"]:
            name, how, least = re.fullmatch(r"([\w-]+)(>=|~=)([\d.]+)", requirement).groups()
            name = {"torch": "pytorch", "dask": "dask-core"}.get(name, name)  # conda's names for them
            assert re.search(rf"^    - {name}(?:-python)? {how}{re.escape(least)}$", recipe, re.MULTILINE), requirement


def test_one_call_of_pip_installs_the_core_and_a_backend_from_a_clone(scratch, tmp_path):
    scratch.pip("hatchling>=1.21", "setuptools>=64", "wheel", "numpy")
    parts = [str(ROOT / "plugins" / name) for name in ("network", "stores", "launch", "watch", "gloo_tcp", "tools")]
    without = {**os.environ, "CC": "no-such-compiler"}  # which takes no time
    scratch.pip("--no-build-isolation", f"{ROOT}[gloo,cli]", *parts, native_source(tmp_path), env=without)
    program = tmp_path / "hello.py"
    program.write_text("import rankwise as dist\ndist.init_process_group('gloo')\ndist.barrier()\nprint('hello')\n")
    said = scratch.python("-m", "rankwise", "run", "-n", "2", str(program))
    assert sorted(said.split()) == sorted(["[0]:", "hello", "[1]:", "hello"])


def test_all_files_name_the_same_repository():
    home, found = CORE["urls"]["Source"], {}
    for path in ROOT.rglob("*.*"):
        parts = path.relative_to(ROOT).parts
        if path.suffix in KINDS and not any(part.startswith((".venv", "site", "dist", "build")) for part in parts):
            for url in re.findall(r"https://(?!pypi\.org)[\w.-]+/[\w.-]+/rankwise\b", path.read_text(encoding="utf-8")):
                found.setdefault(url, []).append(path.name)
    assert list(found) == [home], found
    assert {"pyproject.toml", "recipe.yaml", "mkdocs.yml", "SECURITY.md"} <= set(found[home])
