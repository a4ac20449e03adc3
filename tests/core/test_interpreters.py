"""rankwise refuses interpreters that it cannot be loaded into, in one sentence that says what to do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rankwise.basics import native

PATIENCE_S = 60.0
#: Runs a text in a sub-interpreter that finds what this one finds, and prints the error that ends it.
ELSEWHERE = """
import sys
try:
    import _interpreters as interpreters
    made = interpreters.create({kind!r})
except ImportError:
    import _xxsubinterpreters as interpreters
    made = interpreters.create(isolated={kind!r} == "isolated")
try:
    failed = interpreters.run_string(made, f"import sys; sys.path[:] = {{sys.path!r}}\\n" + {text!r})
except Exception as error:
    failed = error
print(getattr(failed, "formatted", failed))
"""


def printed(program: str) -> str:
    """Run a program in a Python of its own, and return what it prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["legacy", "isolated"])
@pytest.mark.parametrize("name", ["rankwise", "rankwise.errors", "rankwise.backends"])
def test_a_sub_interpreter_is_refused_before_numpy_refuses_it(kind: str, name: str) -> None:
    text = printed(ELSEWHERE.format(kind=kind, text=f"import {name}"))
    assert "ImportError" in text
    assert "rankwise cannot be loaded into a sub-interpreter, as NumPy cannot. Start ranks as processes" in text


def test_a_python_without_its_lock_is_refused_and_told_how_to_turn_it_on() -> None:
    """Where the lock can be off, Python tells so by this function, which others lack."""
    program = "import sys; sys._is_gil_enabled = lambda: {on}\ntry: import rankwise\nexcept ImportError as e: print(e)"
    refused = printed(program.format(on=False))
    assert refused.startswith("rankwise needs Python's global lock (GIL), which is off in this free-threaded Python.")
    assert "set PYTHON_GIL=1" in refused
    assert printed(program.format(on=True)) == ""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="before 3.12 no Python asks an extension")
@pytest.mark.skipif(native.module() is None, reason="the compiled parts are not in use")
def test_the_compiled_parts_declare_it_too() -> None:
    text = printed(ELSEWHERE.format(kind="isolated", text="import rankwise_native._native"))
    assert "rankwise_native._native does not support loading in subinterpreters" in text
