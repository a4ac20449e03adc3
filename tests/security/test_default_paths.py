"""Nothing that arrives is executed: no unpickling, `eval` or the like in what is shipped, but where a test names it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*ROOT.glob("core/rankwise/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")])

#: Modules whose loading runs what the bytes say, and functions that run a text.
DANGEROUS_MODULES = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
HARMLESS = {"dumps", "dump", "PicklingError", "PickleError", "HIGHEST_PROTOCOL"}
DANGEROUS_CALLS = {"eval", "exec", "compile", "__import__"}
#: Methods of the libraries in use that unpickle behind the caller's back.
DANGEROUS_METHODS = {"recv_pyobj", "send_pyobj", "recv_serialized"}
#: Functions that read more than data, or start a shell.
DANGEROUS_FUNCTIONS = {
    "np": {"load", "fromregex", "loadtxt", "genfromtxt"},
    "numpy": {"load", "fromregex", "loadtxt", "genfromtxt"},
    "os": {"system", "popen"},
}
#: In mpi4py the lower-case methods of a communicator pickle.
PICKLING_MPI = {
    *("send", "recv", "isend", "irecv", "ssend", "bcast", "gather", "scatter", "allgather", "alltoall", "reduce"),
    *("allreduce", "scan", "exscan", "sendrecv", "mprobe", "improbe"),
}

#: Where one of them is right, and why nothing reaches it that nobody asked for.
ALLOWED = {
    # Behind `pickle=True` of the program itself, on the sending and on the receiving rank.
    "core/rankwise/calls/objects.py": {"pickle.loads"},
    "plugins/arrays/src/rankwise_arrays/packets.py": {"pickle.loads"},
    # The program that the user has started, which Python would have run itself.
    "plugins/launch/src/rankwise_launch/preload.py": {"exec"},
    # What the program hands to its workers and gets from them, through Dask, which unpickles such itself.
    "plugins/dask/src/rankwise_dask/orders.py": {"pickle.loads"},
    # The tests' own harness, over an inherited socket whose ends have proved that they know the run's key.
    "plugins/testing/src/rankwise_testing/messages.py": {"pickle.loads"},
}


def findings(tree: ast.AST, mpi: bool = False) -> Iterator[str]:
    """Yield what a module does that can run what it reads; in one about MPI, a `comm` is mpi4py's."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in DANGEROUS_MODULES:
                    names[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in DANGEROUS_MODULES:
            yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name not in HARMLESS)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if owner in names and node.attr not in HARMLESS:
                yield f"{names[owner]}.{node.attr}"
            elif node.attr in DANGEROUS_FUNCTIONS.get(owner, ()):
                yield f"{owner}.{node.attr}"
            elif node.attr in DANGEROUS_METHODS:
                yield f".{node.attr}"
            elif mpi and "comm" in owner and node.attr in PICKLING_MPI:
                yield f"{owner}.{node.attr}"
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in DANGEROUS_CALLS:
                yield node.func.id
            for keyword in node.keywords:
                # `shell=True`, `allow_pickle=True`, or a value that is only known when it runs.
                off = isinstance(keyword.value, ast.Constant) and not keyword.value.value
                if keyword.arg in ("shell", "allow_pickle") and not off:
                    yield f"{keyword.arg}="


def test_there_is_something_to_look_at() -> None:
    assert len(SOURCES) > 100


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_that_arrives_is_executed(path: Path) -> None:
    found = set(findings(ast.parse(path.read_text(encoding="utf-8")), "rankwise_mpi" in path.parts))
    assert found == ALLOWED.get(str(path.relative_to(ROOT)), set())


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import pickle as p\np.loads(b'')", "pickle.loads"),
        ("from pickle import Unpickler", "pickle.Unpickler"),
        ("import numpy as np\nnp.load('x')", "np.load"),
        ("f(allow_pickle=True)", "allow_pickle="),
        ("f(allow_pickle=flag)", "allow_pickle="),
        ("subprocess.run('x', shell=True)", "shell="),
        ("eval('1')", "eval"),
        ("socket.recv_pyobj()", ".recv_pyobj"),
        ("comm.bcast(1)", "comm.bcast"),
        ("os.system('x')", "os.system"),
    ],
)
def test_the_search_finds_what_it_is_for(code: str, found: str) -> None:
    assert found in set(findings(ast.parse(code), mpi=True))


def test_a_pickle_is_refused_unless_asked_for() -> None:
    """The one way to unpickle in the package proper asks for `pickle` of its caller, and that is false by default."""
    from inspect import isfunction, signature

    from rankwise.calls import objects

    own = [one for one in vars(objects).values() if isfunction(one) and one.__module__ == objects.__name__]
    calls = [function for function in own if not function.__name__.startswith("_")]
    assert calls
    for call in calls:
        assert signature(call).parameters["pickle"].default is False
