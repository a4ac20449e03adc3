"""`scripts/mutants` shows the planted mistakes that a room's tests do not notice, and those alone."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from rankwise_testing.mutants import mutants

PATIENCE_S = 60.0

SCRIPT = Path(__file__).parents[2] / "scripts/mutants.py"
CODE = "def larger(a, b):\n    return a if a > b else b\n"
TEST = "from room.code import larger\n\n\ndef test_larger():\n    assert larger(1, 2) == larger(2, 1) == {}\n"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("mutants", SCRIPT)
    module = sys.modules["mutants"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["mutants"]


def run(tree, expected):
    (tree / "room").mkdir()
    (tree / "room" / "code.py").write_text(CODE)
    (tree / "test_room.py").write_text(TEST.format(expected))
    command = [sys.executable, SCRIPT, "room", "--tests", "test_room.py"]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=PATIENCE_S)


def test_a_survivor_is_shown(tmp_path):
    done = run(tmp_path, 2)
    assert done.returncode == 1, done.stderr
    assert "2 of 2 mutants of room; tests: test_room.py" in done.stdout
    assert "+    return a if a >= b else b" in done.stdout  # as good as the code
    assert "not (a > b)" not in done.stdout
    assert "1 killed, 0 timed out, 1 survived" in done.stdout
    assert (tmp_path / "room" / "code.py").read_text() == CODE


def test_tests_that_fail_by_themselves_show_nothing(tmp_path):
    done = run(tmp_path, 1)
    assert (done.returncode, done.stderr) == (2, "the tests fail without a mutant\n")


def test_what_needs_an_environment_of_its_own_is_not_found(tmp_path):
    package = tmp_path / "plugins/absent/src/rankwise_absent"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (tmp_path / "conftest.py").write_text(
        "import importlib.util\nassert not importlib.util.find_spec('rankwise_absent')"
    )
    assert "1 killed" in run(tmp_path, 2).stdout


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("a == b", ["a != b"]),
        ("a is  not b", ["a is b"]),
        ("(a) < (b) <= c", ["(a) <= (b) <= c", "(a) < (b) < c"]),
        ("a and b and c", ["a or b and c", "a and b or c"]),
        ("x = a // 2", ["x = a * 2", "x = a // 3"]),
        ("x -= a", ["x += a", "pass"]),
        ("x = not -a", ["x = -a", "x = not a"]),
        ("x = True", ["x = False"]),
        ("f(a, b=c, d=e)", ["f(a, d=e)", "f(a, b=c, )", "pass"]),
        ("x.y = z", ["pass"]),
        ("x = [a for a in b if a]", ["x = [a for a in b if (not (a))]"]),
        ("def f(a: int | None = 1) -> A | B:\n    raise E", ["def f(a: int | None = 2) -> A | B:\n    raise E"]),
        ("def f():\n    if a:\n        return b", ["def f():\n    if a:\n        pass"]),
        ("if TYPE_CHECKING:\n    f(a == b)", []),
        ("x = 'ä' + 'ö' * a", ["x = 'ä' - 'ö' * a", "x = 'ä' + 'ö' + a"]),
    ],
)
def test_mutants_differ_in_one_place(tmp_path, code, expected):
    path = tmp_path / "code.py"
    path.write_text(code)
    made = [mutant.apply(code.encode()).decode() for mutant in mutants(path)]
    assert code not in made
    assert len(made) == len(set(made))
    assert set(expected) <= set(made)
    assert bool(made) == bool(expected)


def test_a_time_out_is_told(script, tmp_path, monkeypatch):
    (tree := tmp_path / "tree").mkdir()
    (tree / "test_room.py").write_text("import time\n\n\ndef test_long():\n    time.sleep(1000)\n")
    monkeypatch.chdir(tree)
    assert script.Copy(tmp_path / "copy", ["test_room.py"]).end(0.5) == "timed out"


def test_each_room_has_tests(script):
    root = SCRIPT.parents[1]
    for row in script.TESTS:
        assert (root / row).is_dir() or (root / f"{row}.py").is_file()
        for path in script.tests_of(Path(row)):
            assert (root / path).is_file()
    assert script.tests_of(Path("plugins/watch/src/rankwise_watch/judge.py")) == ["tests/plugins/watch"]
