"""Discovery with real installed distributions: what is broken disturbs nobody, and is explained."""

import json

import pytest

LISTING = """
import json, sys, rankwise
from rankwise.backends.registry import registry
print(json.dumps({
    "names": registry.names(),
    "problems": {name: str(registry.problem(name)) for name in registry.names() if registry.problem(name)},
    "table": rankwise.capabilities().to_dict(),
    "available": {name: rankwise.is_backend_available(name) for name in registry.names()},
    "providers": {name: registry.provider(name) for name in registry.names()},
}))
"""


@pytest.fixture(scope="module")
def listing(zoo):
    return json.loads(zoo.run(LISTING))


def test_lists_all_and_loads_the_good_ones(listing):
    assert listing["names"] == ["broken", "future", "good", "liar", "mesh", "mute", "twin"]
    assert sorted(listing["table"]) == ["good", "mesh"]
    assert listing["available"] == {name: name in ("good", "mesh") for name in listing["names"]}
    assert listing["providers"]["good"] == "rankwise-good 1.2"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broken", ["rankwise-broken 0.3", "ModuleNotFoundError", "a_library_that_is_not_there"]),
        ("future", ["rankwise-future 9.0", "API version 99", "has 1"]),
        ("twin", ["rankwise-twin-a 1.0", "rankwise-twin-b 2.0", "uninstall"]),
        ("liar", ["rankwise-liar 1.0", "'liar'", "'good'"]),
        ("mute", ["rankwise-mute 1.0", "rankwise_backend"]),
    ],
)
def test_explains_each_bad_one_by_name_version_and_cause(listing, name, words):
    assert all(word in listing["problems"][name] for word in words), listing["problems"][name]


def test_loads_only_the_plugin_that_is_named(zoo):
    loaded = zoo.run(
        """
        import sys, rankwise
        rankwise.Backend("good"); rankwise.BackendConfig("good")
        print(sorted(m for m in sys.modules if m.startswith("rankwise_")))
        """
    )
    assert loaded.strip() == "['rankwise_good']"


def test_asking_for_a_broken_one_raises_a_plugin_error(zoo):
    said = zoo.run(
        """
        import rankwise
        for name in ("broken", "future", "twin"):
            try:
                rankwise.init_process_group(name, rank=0, world_size=1)
            except rankwise.PluginError as error:
                print(name, type(error.__cause__).__name__)
        """
    )
    assert said.split() == ["broken", "ModuleNotFoundError", "future", "NoneType", "twin", "NoneType"]


def test_an_unknown_name_lists_the_installed_the_near_match_and_the_command(zoo):
    said = zoo.run(
        """
        import rankwise
        for name in ("goood", "gloo"):
            try:
                rankwise.BackendConfig(name)
            except ValueError as error:
                print(error)
        """
    )
    assert "installed: broken, future, good" in said
    assert "did you mean 'good'?" in said
    assert "pip install rankwise-gloo-tcp" in said


def test_a_name_taken_by_a_plugin_is_registered_only_on_purpose(zoo):
    said = zoo.run(
        """
        import rankwise
        try:
            rankwise.register_backend("good", lambda *a: None)
        except ValueError as error:
            print(error)
        rankwise.register_backend("good", lambda *a: None, devices="cuda", replace=True)
        print(rankwise.Backend.backend_capability["good"])
        """
    )
    assert "already registered by rankwise-good 1.2" in said
    assert "['cuda']" in said


def test_pytest_loads_nothing_of_a_core_that_is_installed_alone(core, scratch):
    scratch.pip("pytest", *core)
    (scratch.folder / "test_user.py").write_text(
        "import sys\ndef test_nothing_of_ours():\n    assert not [n for n in sys.modules if n.startswith('rankwise')]\n"
    )
    assert "1 passed" in scratch.pytest("test_user.py")
    said = scratch.run(
        """
        import subprocess, sys
        done = subprocess.run([sys.executable, "-m", "rankwise", "conformance", "x"], capture_output=True, text=True)
        print(done.returncode, done.stderr)
        """
    )
    assert said.split() == "69 rankwise conformance: it is not installed: pip install rankwise-testing".split()


def test_a_core_that_is_installed_alone_makes_secrets_and_says_what_brings_the_rest(core, scratch):
    scratch.pip(*core)
    said = scratch.run(
        """
        import subprocess, sys
        import rankwise as dist
        def told(*arguments):
            done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True)
            print(done.returncode, done.stdout.splitlines()[:1], done.stderr.strip())
        told("rankwise", "secret", "new", "job.secret")
        told("rankwise", "secret", "new", "job.secret")
        told("rankwise", "run", "-n", "2", "program.py")
        told("rankwise", "top")
        told("rankwise", "measure")
        told("rankwise.launch", "program.py")
        told("rankwise", "--version")
        told("rankwise")
        assert len(open("job.secret").read().strip()) == 64
        class Table(dict):
            set = get = add = compare_set = wait = lambda *arguments: None
        for call in (
            lambda: dist.spawn(print, nprocs=2),
            lambda: dist.FileStore("store"),
            lambda: dist.as_store(Table()),
            lambda: next(dist.rendezvous("file:///tmp/store", rank=0, world_size=1)),
        ):
            try:
                call()
            except dist.PluginError as error:
                print(error, "/", error.remedy)
        exec("from rankwise import *")
        """
    )
    lines = said.splitlines()
    assert lines[0].startswith("0 ['job.secret: a new job secret, which only you can read; ")
    assert lines[1:-6] == [
        "1 [] rankwise secret: job.secret is there already, and is left as it is; choose another name",
        "69 [] rankwise run: it is not installed: pip install rankwise-launch",
        "69 [] rankwise top: it is not installed: pip install rankwise-tools",
        "69 [] rankwise measure: rankwise-launch is not installed: pip install rankwise-launch",
        "69 [] python -m rankwise.launch: rankwise-launch is not installed: pip install rankwise-launch",
    ]
    assert lines[-6].startswith("0 ['rankwise 0.1")
    assert lines[-5].startswith("0 ['usage: rankwise ")
    brought_by = ("rankwise-launch", "rankwise-stores", "rankwise-stores", "rankwise-stores")
    assert lines[-4:] == [f"{name} is not installed: pip install {name} / pip install {name}" for name in brought_by]


def test_the_wheel_imports_nothing_heavy(zoo):
    said = zoo.run(
        """
        import sys, rankwise
        print([m for m in ("zmq", "cupy", "mpi4py", "torch", "ray", "pluggy", "msgpack", "pytest") if m in sys.modules])
        """
    )
    assert said.strip() == "[]"


def test_the_core_wheel_is_small(wheels):
    (wheel,) = wheels.glob("rankwise-0*.whl")
    # The calls, stores and algorithms alone have 300; the rest is the watch, its figures and timelines, the commands
    # and the testing kit.
    assert wheel.stat().st_size < 544 * 1024
