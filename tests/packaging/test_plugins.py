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
    mesh = listing["table"]["mesh"]["cpu"]["ops"]
    assert (mesh["send"]["support"], mesh["all_to_all"]["support"]) == ("native", "derived")
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


def test_loads_only_the_plugin_that_is_named_and_nothing_heavy(zoo):
    loaded = zoo.run(
        """
        import sys, rankwise
        print([m for m in ("zmq", "cupy", "mpi4py", "torch", "ray", "pluggy", "msgpack", "pytest") if m in sys.modules])
        rankwise.Backend("good"); rankwise.BackendConfig("good")
        print([m for m in sys.modules if m.startswith("rankwise_")])
        """
    )
    assert loaded.splitlines() == ["[]", "['rankwise_good']"]


#: What is called, one after the other, and what is said of it.
SAID = {
    "rankwise.init_process_group('broken', rank=0, world_size=1)": ["PluginError", "ModuleNotFoundError"],
    "rankwise.init_process_group('future', rank=0, world_size=1)": ["PluginError", "NoneType"],
    "rankwise.init_process_group('twin', rank=0, world_size=1)": ["PluginError", "NoneType"],
    "rankwise.BackendConfig('goood')": ["NotFoundError", "installed: broken, future, good", "did you mean 'good'?"],
    "rankwise.BackendConfig('gloo')": ["NotFoundError", "pip install rankwise-gloo-tcp"],
    "rankwise.register_backend('good', print)": ["ValueError", "already registered by rankwise-good 1.2"],
    "rankwise.register_backend('good', print, devices='cuda', replace=True)": ["None"],
    "rankwise.Backend.backend_capability['good']": ["['cuda']"],
}


@pytest.fixture(scope="module")
def answers(zoo):
    said = zoo.run(
        f"""
        import rankwise
        for call in {list(SAID)}:
            try:
                print(eval(call))
            except Exception as error:
                print(type(error).__name__, type(error.__cause__).__name__, str(error).replace("\\n", " "))
        """
    )
    return dict(zip(SAID, said.splitlines(), strict=True))


@pytest.mark.parametrize("call", SAID)
def test_names_that_are_broken_unknown_or_taken_are_explained(answers, call):
    assert all(word in answers[call] for word in SAID[call]), answers[call]


def test_the_core_wheel_is_small(wheel_of):
    # The calls, stores and algorithms alone have 300; the rest is the watch, its figures and timelines, the commands
    # and the testing kit.
    assert os.stat(wheel_of["rankwise"]).st_size < 544 * 1024
