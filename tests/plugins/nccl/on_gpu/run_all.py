"""Runs all tests on the GPU, and writes what was found: where, with which versions, what passed, what was not tested.

Called by scripts/test-gpu: run_all.py [--on-host] RESULTS [ARGUMENT OF THE CONFORMANCE SUITE...]
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from reporting import FILE, read

ROOT = Path(__file__).parents[4]
HERE = Path(__file__).parent

#: What lets several ranks share one GPU, over sockets of this machine alone.
SHARED = {
    "NCCL_HOSTID": "rank-{rank}",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "CUDA_MODULE_LOADING": "LAZY",
}

#: The backends that take arrays of a GPU, and where each is declared; gloo copies them to the host.
BACKENDS = {"nccl": "rankwise_nccl.plugin", "gloo": "rankwise_gloo_tcp.plugin"}

#: The status of what had to be ended.
CUT_OFF = "cut off"

#: What a part without time has found.
NOTHING: dict[str, Any] = {"status": CUT_OFF, "passed": 0, "failed": [], "skipped": {}}

#: Whether what makes arrays of the narrow dtypes is missing, as images for GPUs have no ml_dtypes.
WITHOUT_NARROW = find_spec("ml_dtypes") is None

#: How long all of it may take.
LIMIT_S = float(os.environ.get("RANKWISE_GPU_LIMIT_S", "480"))

#: What is said in the place of a GPU where the double stands in for it.
ON_HOST = "--on-host"


class Part(NamedTuple):
    """One part: its name, how long it may take, and what runs it, given how long that is."""

    name: str
    limit_s: float
    run: Callable[[Path, float], dict[str, Any]]


def main(arguments: Sequence[str]) -> int:
    """Run the parts in order, write the results after each, and return the exit status."""
    on_host = arguments[0] == ON_HOST
    path, *more = map(str, arguments[on_host:])
    if not on_host:
        from rankwise_nccl.library.availability import availability

        answer = availability()
        if not answer:
            print(f"test-gpu: nothing can be tested here: {answer.reason}; {answer.remedy}", file=sys.stderr)
            return 2
    results = {**(rehearsal() if on_host else machine()), "limit_s": LIMIT_S, "runs": {}, "capabilities": {}}
    with tempfile.TemporaryDirectory() as folder:
        run_parts(parts_on_host(more) if on_host else parts(more), Path(folder), results, Path(path))
    # Status 5 means that nothing was selected.
    runs = results["runs"].values()
    failed = sum(len(run["failed"]) + (run["status"] not in (0, 5, CUT_OFF)) for run in runs)
    print(f"test-gpu: wrote {path}: {sum(run['passed'] for run in runs)} passed, {failed} failed")
    return 1 if failed else 0


def run_parts(listed: Sequence[Part], folder: Path, results: dict[str, Any], path: Path) -> None:
    """Run parts one after the other; a cut loses only what had not ended."""
    end_s = time.monotonic() + LIMIT_S
    for part in listed:
        began_s = time.monotonic()
        limit_s = min(part.limit_s, end_s - began_s)
        print(f"test-gpu: {part.name}, up to {max(0, limit_s):.0f} s", flush=True)
        run = part.run(folder, limit_s) if limit_s > 1 else dict(NOTHING)
        results["runs"][part.name] = {**run, "took_s": round(time.monotonic() - began_s, 1)}
        results["capabilities"] = {backend: read_json(folder / f"{backend}.json") for backend in BACKENDS}
        results["not_tested"] = not_tested(results["runs"])
        path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def parts(more: Sequence[str]) -> list[Part]:
    """Return what runs on a GPU: what says most in the least time comes first."""
    tests = HERE / "test_on_gpu.py"
    smoke = [f"{tests}::test_nccl_waits_for_the_callers_stream_and_the_other_way_round[{size}]" for size in (1, 2)]
    return [
        Part("smoke", 20, partial(tested, smoke)),
        Part("streams and failures", 90, partial(tested, [str(tests)])),
        Part(
            "conformance of nccl",
            150,
            lambda folder, limit_s: pytest(folder, conformance(folder, "nccl", more), limit_s),
        ),
        Part("figures", 60, partial(figures, ROOT / "benchmarks/nccl.py")),
        Part(
            "conformance of gloo",
            150,
            lambda folder, limit_s: pytest(folder, conformance(folder, "gloo", more), limit_s),
        ),
    ]


def parts_on_host(more: Sequence[str]) -> list[Part]:
    """Return the same with the double in the place of CuPy and NCCL, whose ranks are threads of one process."""
    doubles = os.pathsep.join([str(HERE.parent), str(ROOT / "tests/fakes")])
    os.environ["PYTHONPATH"] = os.pathsep.join([doubles, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    in_threads = ["--launch", "threads", "--plugin-module", "nccl_on_host"]
    tests = [str(HERE.parent / name) for name in ("test_hostile.py", "test_streams.py", "test_failures.py")]
    return [
        Part("smoke", 20, partial(tested, [str(HERE.parent / "test_premul.py")])),
        Part("streams and failures", 90, partial(tested, tests)),
        Part(
            "conformance of nccl",
            150,
            lambda folder, limit_s: pytest(folder, [*conformance(folder, "nccl", more), *in_threads], limit_s),
        ),
        Part("figures", 60, partial(figures, HERE.parent / "overhead.py")),
        Part(
            "conformance of gloo",
            150,
            lambda folder, limit_s: pytest(folder, conformance(folder, "gloo", more), limit_s),
        ),
    ]


def tested(tests: Sequence[str], folder: Path, limit_s: float) -> dict[str, Any]:
    """Run tests of this folder or the one above."""
    return pytest(folder, tests, limit_s)


def figures(program: Path, folder: Path, limit_s: float) -> dict[str, Any]:
    """Run a benchmark, which fails if a promise is not kept, and keep what it prints."""
    status, printed = bounded([sys.executable, str(program)], dict(os.environ), limit_s, subprocess.PIPE)
    kept = status in (0, CUT_OFF)
    return {
        **NOTHING,
        "status": status,
        "passed": int(status == 0),
        "failed": [] if kept else [program.name],
        "printed": printed,
    }


def conformance(directory: Path, backend: str, more: Sequence[str]) -> list[str]:
    """Return the arguments that run the conformance suite on arrays of the GPU."""
    import rankwise_testing.suite as suite

    env = [word for name, value in SHARED.items() for word in ("--env", f"{name}={value}")]
    if WITHOUT_NARROW and "-k" not in more:
        more = ["-k", "not float8 and not bfloat16 and not float4 and not float6 and not int4 and not int2", *more]
    settings = Path(suite.__file__).with_name("pytest.ini")
    return [
        *("-c", str(settings), "-p", "rankwise_testing.suite.plugin", "--pyargs", "rankwise_testing.suite"),
        *("--backend", backend, "--device", "cuda", "--launch", "processes", "--plugin-module", BACKENDS[backend]),
        *("--report", f"{directory}/{backend}.json", *env, *more),
    ]


def pytest(directory: Path, arguments: Sequence[str], limit_s: float) -> dict[str, Any]:
    """Run pytest, and return what passed, what failed and what was skipped, also where it had to be cut off."""
    report = directory / "report.jsonl"
    report.unlink(missing_ok=True)
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "reporting", *arguments]
    status, _ = bounded(command, {**os.environ, FILE: str(report), "PYTHONPATH": paths}, limit_s)
    told = list(read(report))
    failed = sorted({name for name, outcome, _ in told if outcome == "failed"})
    skipped = {name: why for name, outcome, why in told if outcome == "skipped"}
    passed = len({name for name, outcome, _ in told if outcome == "passed"} - set(failed))
    return {"status": status, "passed": passed, "failed": failed, "skipped": skipped}


def bounded(
    command: Sequence[str], env: dict[str, str], limit_s: float, out: Any = None
) -> tuple[int | str, str | None]:
    """Run a command, and end it with all that it has started at its limit; return its status, and what it printed."""
    process = subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True, stdout=out, text=True)
    try:
        printed, _ = process.communicate(timeout=limit_s)
        return process.returncode, printed
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
        return CUT_OFF, printed


def rehearsal() -> dict[str, Any]:
    """Return what the double runs on."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"date": now, "python": platform.python_version(), "gpus": [], "double": True}


def machine() -> dict[str, Any]:
    """Return what it ran on. CUDA is asked in another process, so that this one holds no memory of the GPU."""
    program = (
        "import cupy, json; from cupy.cuda import nccl, runtime as r;"
        "n = r.getDeviceCount(); p = [r.getDeviceProperties(i) for i in range(n)];"
        "print(json.dumps(dict(gpus=[d['name'].decode() for d in p],"
        " compute_capability=[f\"{d['major']}.{d['minor']}\" for d in p], cuda_driver=r.driverGetVersion(),"
        " cuda_runtime=r.runtimeGetVersion(), nccl=nccl.get_version(), cupy=cupy.__version__)))"
    )
    found: dict[str, Any] = json.loads(subprocess.check_output([sys.executable, "-c", program], text=True, timeout=120))
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    told = subprocess.run(query, capture_output=True, text=True, check=False, timeout=60).stdout.splitlines()
    driver = told[0].strip() if told else ""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"date": now, "python": platform.python_version(), "driver": driver, **found, "environment": SHARED}


def not_tested(runs: dict[str, Any]) -> dict[str, str]:
    """Return what could not be tested, and why."""
    reasons = {name: why for run in runs.values() for name, why in run["skipped"].items()}
    if WITHOUT_NARROW:
        reasons["bfloat16 and float8"] = "ml_dtypes is not installed"
    reasons["speed between GPUs"] = "the ranks share one GPU and talk over sockets"
    reasons["NVLink, PCIe peer access and InfiniBand"] = "they need several GPUs, or several machines"
    return reasons


def read_json(path: Path) -> Any:
    """Return the content of a file, or None if it is not there."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
