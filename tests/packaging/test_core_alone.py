"""A core that is installed alone works by itself, and says of everything else what brings it."""

import json

import pytest
from tests.packaging.conftest import Scratch

NOT_INSTALLED = "is not installed: pip install"
#: What is called, one after the other: the exit code, how the output begins, and all errors.
CALLS = [
    ("rankwise secret new job.secret", 69, "", f"rankwise secret: it {NOT_INSTALLED} rankwise-launch"),
    ("rankwise run -n 2 program.py", 69, "", f"rankwise run: it {NOT_INSTALLED} rankwise-launch"),
    ("rankwise top", 69, "", f"rankwise top: it {NOT_INSTALLED} rankwise-tools"),
    ("rankwise conformance x", 69, "", f"rankwise conformance: it {NOT_INSTALLED} rankwise-testing"),
    ("rankwise measure", 69, "", f"rankwise measure: rankwise-launch {NOT_INSTALLED} rankwise-launch"),
    ("rankwise --version", 0, "rankwise 0.1", ""),
    ("rankwise", 69, "", f"rankwise: rankwise-launch {NOT_INSTALLED} rankwise-launch"),
]


@pytest.fixture(scope="module")
def alone(core, tmp_path_factory):
    """An environment with pytest and the core."""
    scratch = Scratch(tmp_path_factory.mktemp("alone"))
    scratch.pip("pytest", *core)
    return scratch


def test_pytest_loads_nothing_of_it(alone):
    (alone.folder / "test_user.py").write_text(
        "import sys\ndef test_nothing_of_ours():\n    assert not [n for n in sys.modules if n.startswith('rankwise')]\n"
    )
    assert "1 passed" in alone.pytest("test_user.py")


def test_its_commands_say_what_brings_them(alone):
    said = alone.run(
        f"""
        import json, subprocess, sys
        for call in {[call for call, *_ in CALLS]}:
            done = subprocess.run([sys.executable, "-m", *call.split()], capture_output=True, text=True)
            print(json.dumps([done.returncode, done.stdout, done.stderr.strip()]))
        """
    )
    for (call, code, begins, problem), line in zip(CALLS, said.splitlines(), strict=True):
        ended, printed, told = json.loads(line)
        assert (ended, told) == (code, problem), call
        assert printed.startswith(begins), call
        assert bool(printed) == bool(begins), call


def test_its_functions_say_what_brings_the_rest(alone):
    said = alone.run(
        """
        import rankwise as dist
        class Table(dict):
            set = get = add = compare_set = wait = lambda *arguments: None
        for call in (
            lambda: dist.spawn(print, nprocs=2),
            lambda: dist.FileStore("store"),
            lambda: dist.TCPStore("127.0.0.1"),
            lambda: dist.secret.new(),
            lambda: dist.get_node_local_rank(),
            lambda: dist.stats(),
            lambda: next(dist.rendezvous("env://")),
            lambda: dist.as_store(Table()),
            lambda: next(dist.rendezvous("file:///tmp/store", rank=0, world_size=1)),
            lambda: dist.all_reduce_multigpu([]),
            lambda: dist.capabilities().to_markdown(),
            lambda: dist.HashStore().queue_push("jobs", "first"),
            lambda: dist.HashStore().barrier("ready", 1),
        ):
            try:
                call()
            except dist.PluginError as error:
                print(error, "/", error.remedy)
        exec("from rankwise import *")
        print(dist.capabilities(), dist.capabilities()._repr_html_())
        """
    )
    brought_by = [
        *("rankwise-launch", "rankwise-stores", "rankwise-stores", "rankwise-network", "rankwise-network"),
        *("rankwise-watch", "rankwise-stores", "rankwise-stores", "rankwise-stores"),
        *("rankwise-arrays", "rankwise-launch", "rankwise-stores", "rankwise-stores"),
    ]
    wanted = [f"{name} is not installed: pip install {name} / pip install {name}" for name in brought_by]
    seen = "<CapabilityTable of no backend; to see it: pip install rankwise-launch> None"
    assert said.splitlines() == [*wanted, seen]
