"""Every example runs, says that its result is right, and notices when it is not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rankwise.backends.registry import registry
from rankwise_launch.launching import environment, find_program

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE_S = 90
#: What each says at the end, and how many ranks may run it.
LAST_WORDS = {
    "hello": "1 + ... + {n} = ",
    "collectives": "barrier: nobody goes on before all are there",
    "data_parallel": "parameters of all ranks are identical, bit for bit",
    "overlap": "right: they are those of one process that has all the data",
    "pipeline": "right: {n} stages",
    "kmeans": "right: one process finds the same centres",
    "halo": "right: the blocks are the plate in one piece",
    "objects": "right: every rank has the same settings",
    "custom_backend": "right: all_reduce, uneven all_gather, objects",
}
#: A call that each example relies on, and that is made to go wrong.
WEAK_SPOTS = {
    "hello": "all_reduce",
    "collectives": "all_to_all",
    "data_parallel": "all_reduce",
    "overlap": "all_reduce",
    "pipeline": "recv",
    "kmeans": "all_reduce",
    "halo": "gather",
    "objects": "scatter_object_list",
    "custom_backend": "all_gather",
}
#: Runs a program in which rank 0 gets something else from one of the calls than the others have sent.
SABOTAGE = """
import runpy, sys
import rankwise

name, program = sys.argv[1:3]
sys.argv = sys.argv[2:]
right = getattr(rankwise, name)

def wrong(found, *args, **kwargs):
    work = right(found, *args, **kwargs)
    if work is not None and kwargs.get("async_op"):
        work.wait()
    if rankwise.get_rank() == 0 or name == "recv":
        spoil(found)
    return work

def spoil(found):
    if isinstance(found, dict):
        found["shard"] = -1
    elif isinstance(found, list):
        spoil(found[-1])
    else:
        found.flat[0] += 1

if name == "gather":
    def wrong(array, parts, **kwargs):
        right(array, parts, **kwargs)
        if parts is not None:
            spoil(parts)

setattr(rankwise, name, wrong)
runpy.run_path(program, run_name="__main__")
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        env=environment(),
        cwd=EXAMPLES,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def launched(n: int, *program: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "rankwise", "run", "-n", str(n), *program)


def needs(backend: str) -> None:
    answer = registry.availability(backend)
    if not answer:
        pytest.skip(f"{backend}: {answer.reason}")


def chosen(name: str, backend: str) -> list[str]:
    """Return the arguments that make an example take a backend."""
    return ["--backend", backend, "--steps", "60"] if name == "data_parallel" else [backend]


def test_all_examples_are_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(LAST_WORDS) == set(WEAK_SPOTS)


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("name", LAST_WORDS)
def test_an_example_runs_over_gloo_and_checks_itself(name: str, n: int) -> None:
    needs("gloo")
    done = launched(n, f"{name}.py", *chosen(name, "gloo"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert LAST_WORDS[name].format(n=n) in done.stdout
    assert done.stderr == ""


def test_the_collectives_show_what_moves_where() -> None:
    needs("gloo")
    shown = launched(3, "collectives.py").stdout
    rows = re.findall(r"\[0\]: (\w+): .*\n\[0\]: +rank 0: .* -> (.*)\n", shown)
    assert dict(rows) == {
        "broadcast": "[0, 1]",
        "all_reduce": "[30, 33]",
        "reduce": "[20, 21]",
        "all_gather": "[0, 1]  [10, 11]  [20, 21]",
        "gather": "[0, 1]  [10, 11]  [20, 21]",
        "scatter": "[0, 0]",
        "reduce_scatter": "[30, 33]",
        "all_to_all": "[0, 1]  [10, 11]  [20, 21]",
    }


@pytest.mark.parametrize("name", [name for name in LAST_WORDS if name != "custom_backend"])
def test_an_example_runs_over_mpi_as_it_is(name: str) -> None:
    needs("mpi")
    mpiexec = find_program("mpiexec")
    assert mpiexec is not None
    done = run(mpiexec, "-n", "3", sys.executable, f"{name}.py", *chosen(name, "mpi"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert LAST_WORDS[name].format(n=3) in done.stdout


def test_the_training_runs_over_nccl_as_it_is(tmp_path: Path) -> None:
    needs("nccl")
    # NCCL takes two ranks on one GPU for a mistake, unless they seem to be on different hosts.
    script = tmp_path / "apart.py"
    script.write_text(
        "import os, runpy, sys\n"
        "os.environ.setdefault('NCCL_HOSTID', 'rank-' + os.environ['RANK'])\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    done = launched(2, str(script), "data_parallel.py", *chosen("data_parallel", "nccl"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert LAST_WORDS["data_parallel"] in done.stdout


@pytest.mark.parametrize("name", [name for name in LAST_WORDS if name != "custom_backend"])
def test_an_example_runs_on_a_single_rank(name: str) -> None:
    needs("gloo")
    done = launched(1, f"{name}.py", *chosen(name, "gloo"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert LAST_WORDS[name].format(n=1) in done.stdout


@pytest.mark.parametrize("name", WEAK_SPOTS)
def test_an_example_whose_communication_is_wrong_fails(tmp_path: Path, name: str) -> None:
    needs("gloo")
    script = tmp_path / "sabotage.py"
    script.write_text(SABOTAGE)
    done = launched(2, str(script), WEAK_SPOTS[name], f"{name}.py", *chosen(name, "gloo"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert LAST_WORDS[name].format(n=2) not in done.stdout
