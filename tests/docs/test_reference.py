"""The reference answers: every public function says what it takes, returns and raises, and its example runs.

An example of a call or a group runs on two ranks, `rank` being this rank's number, and shows what rank 0 sees. Others
run alone, as does one that calls `init_process_group` itself; one with `__main__` is a program of its own. `dist` is
rankwise, `np` is NumPy, and `folder` an empty folder.
"""

import doctest
import inspect
import re
import subprocess
import sys
import traceback
from contextvars import copy_context
from pathlib import Path

import numpy as np
import pytest

import rankwise as dist
from rankwise.backends.registry import registry
from rankwise.groups.world import World, use
from rankwise.store import rendezvous
from rankwise_local import local_world

PATIENCE_S = 60.0

FUNCTIONS = {name: getattr(dist, name) for name in (*dist.__all__, "stats") if inspect.isroutine(getattr(dist, name))}
METHODS = {
    f"Store.{name}": value for name, value in vars(dist.Store).items() if inspect.isroutine(value) and name[0] != "_"
}
CLASSES = {
    cls.__name__: cls
    for cls in (
        *(dist.Backend, dist.BackendConfig, dist.P2POp, dist.ReduceOp),
        *(dist.FileStore, dist.HashStore, dist.PrefixStore, dist.TCPStore),
    )
}
METHODS["ProcessGroup.create"] = dist.ProcessGroup.create
DOCUMENTED = {**FUNCTIONS, **METHODS, **CLASSES}
ROOMS = Path(dist.__file__).parent
CALLS = [name for name, function in FUNCTIONS.items() if function.__module__.startswith("rankwise.calls")]
#: Rooms whose calls need others.
SHARED = (
    *("rankwise.basics.reduce_op", "rankwise.calls", "rankwise.codec"),
    *("rankwise.groups.queries", "rankwise.groups.subgroups"),
)


def section(function, title):
    """Return a section of a docstring, without its heading; nothing if there is none."""
    found = re.search(rf"^{title}:\n((?:    .*\n?|\n)+)", inspect.getdoc(function) or "", re.MULTILINE)
    return inspect.cleandoc(found[1]) if found else ""


def examples(function):
    return doctest.DocTestParser().get_examples(section(function, "Examples") + "\n")


@pytest.mark.parametrize("name", DOCUMENTED)
def test_an_example_is_no_wider_than_its_place_on_the_page(name):
    lines = [line for line in section(DOCUMENTED[name], "Examples").splitlines() if line]
    assert max(map(len, lines), default=0) <= 80


def program(function):
    return "".join(example.source for example in examples(function))


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_parameter_is_described(name):
    signature = inspect.signature(inspect.unwrap(DOCUMENTED[name]))
    taken = [parameter for parameter in signature.parameters if parameter != "self"]
    described = re.findall(r"^\**(\w+): \S", section(DOCUMENTED[name], "Args"), re.MULTILINE)
    assert described == taken


@pytest.mark.parametrize("name", [*FUNCTIONS, *METHODS])
def test_what_is_returned_is_described(name):
    function = DOCUMENTED[name]
    returned = inspect.signature(inspect.unwrap(function)).return_annotation
    described = section(function, "Yields" if returned.startswith("Iterator") else "Returns")
    assert bool(described) == (returned != "None")
    if "async_op" in inspect.signature(function).parameters:
        assert "`async_op`" in described


@pytest.mark.parametrize("name", CALLS)
def test_what_a_call_raises_is_described(name):
    assert section(FUNCTIONS[name], "Raises")


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_example_runs_and_shows_what_is_true(name, monkeypatch, tmp_path):
    function = DOCUMENTED[name]
    assert examples(function), f"{name} has no example"
    for variable, value in {"RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(variable, value)
    for variable in ("LOCAL_RANK", "RANKWISE_DEBUG", "TORCH_DISTRIBUTED_DEBUG"):
        monkeypatch.delenv(variable, raising=False)
    if "__main__" in program(function):
        run_as_a_program(function, tmp_path, monkeypatch)
    elif function.__module__.startswith(SHARED) and "init_process_group" not in program(function):
        with local_world(2, timeout=30) as world:
            shown, _ = world.run(run, function)
            check(function, shown)
    else:
        monkeypatch.setattr(rendezvous, "_handlers", dict(rendezvous._handlers))
        monkeypatch.setattr(registry, "_in_process", dict(registry._in_process))
        check(function, copy_context().run(run_alone, function, tmp_path))
    dist.set_debug_level_from_env()


def run_as_a_program(function, tmp_path, monkeypatch):
    path = tmp_path / "program.py"
    path.write_text(f"import rankwise as dist\n{program(function)}")
    for variable in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(variable)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "".join(e.want for e in examples(function)), "")


def run_alone(function, folder):
    use(World())
    return run(function, rank=0, folder=folder)


def run(function, rank=None, **more):
    """Run an example, and return what each of its statements shows."""
    shown = []
    names = {"__name__": "example", "dist": dist, "np": np, "rank": dist.get_rank() if rank is None else rank, **more}
    names["print"] = lambda *values: shown.append(" ".join(map(str, values)) + "\n")
    results = []
    for example in examples(function):
        shown.clear()
        try:
            statement(example.source, names, shown)
        except Exception as error:
            if example.exc_msg is None:
                raise
            shown[:] = traceback.format_exception_only(error)
        results.append("".join(shown))
    return results


def statement(source, names, shown):
    try:
        expression = compile(source, "<example>", "eval")
    except SyntaxError:
        exec(compile(source, "<example>", "exec"), names)
        return
    value = eval(expression, names)
    if value is not None:
        shown.append(f"{value!r}\n")


def check(function, shown):
    for example, text in zip(examples(function), shown, strict=True):
        same = doctest.OutputChecker().check_output(example.exc_msg or example.want, text, doctest.ELLIPSIS)
        assert same, f"{example.source}shows\n{text}rather than\n{example.want}"


def test_what_an_example_shows_wrongly_is_found():
    def function():
        """Do nothing.

        Examples:
            >>> rank + 1
            2
        """

    assert run(function, rank=1) == ["2\n"]
    check(function, run(function, rank=1))
    with pytest.raises(AssertionError, match="rather than"):
        check(function, run(function, rank=0))


def test_dir_shows_as_many_public_names_as_a_person_can_hold():
    brought = {"FileStore", "TCPStore", "elastic", "secret", "spawn"}
    brought |= {"as_completed", "functional", "grid", "sendrecv", "share", "wait_all", "wait_any", "wait_some", "world"}
    brought |= {"channel", "pool", "prepare", "split", "stats", "fence", "shared_empty", "shared_from", "shared_zeros"}
    faces = {"backends", "errors", "kits", "launching", "observing", "stores"}
    shown = dir(dist)
    assert len(shown) == len(set(shown)) <= 90
    assert brought | faces <= set(shown) <= {*dist.__all__, *brought, *faces}


def test_all_modules_of_the_core_are_found_by_their_names():
    code = "import rankwise\nprint([name for name in {} if not hasattr(rankwise, name)])"
    rooms = [path.stem for path in ROOMS.iterdir() if (path / "__init__.py").exists() or path.suffix == ".py"]
    rooms = [name for name in rooms if not name.startswith("__")]
    code = code.format(rooms)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert ran.stdout == "[]\n"


def test_each_name_that_dir_shows_can_be_had_after_importing_the_package_alone():
    code = "import rankwise\nprint([name for name in dir(rankwise) if not hasattr(rankwise, name)])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert ran.stdout == "[]\n"
