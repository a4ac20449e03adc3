"""Discovery with real installed distributions: what is broken disturbs nobody, and is explained."""

import json
import os

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


def test_the_wheel_imports_nothing_heavy(zoo):
    said = zoo.run(
        """
        import sys, rankwise
        print([m for m in ("zmq", "cupy", "mpi4py", "torch", "ray", "pluggy", "msgpack", "pytest") if m in sys.modules])
        """
    )
    assert said.strip() == "[]"


def test_the_core_wheel_is_small(wheel_of):
    # The calls, stores and algorithms alone have 300; the rest is the watch, its figures and timelines, the commands
    # and the testing kit.
    assert os.stat(wheel_of["rankwise"]).st_size < 544 * 1024
