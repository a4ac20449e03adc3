"""Runs all tests on the GPU, and writes what was found: where, with which versions, what passed, what was not tested.

Called by scripts/test-gpu: run_all.py RESULTS [ARGUMENT OF THE CONFORMANCE SUITE...]
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

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

#: How long each of the runs may take.
LIMIT_S = int(os.environ.get("RANKWISE_GPU_LIMIT_S", "1500"))


def main(arguments: Sequence[str]) -> int:
    """Run all, write the results, and return the exit status."""
    path = Path(arguments[0])
    from rankwise_nccl.library.availability import availability

    answer = availability()
    if not answer:
        print(f"test-gpu: nothing can be tested here: {answer.reason}; {answer.remedy}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory:
        runs = {
            "without a GPU": pytest(Path(directory), [str(HERE.parent), "--ignore", str(HERE)]),
            "streams and failures": pytest(Path(directory), [str(HERE)]),
            **{
                f"conformance of {backend}": pytest(Path(directory), conformance(directory, backend, arguments[1:]))
                for backend in BACKENDS
            },
        }
        tables = {backend: read_json(Path(directory) / f"{backend}.json") for backend in BACKENDS}
    results = {**machine(), "runs": runs, "capabilities": tables, "not_tested": not_tested(runs)}
    path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    # Status 5 means that nothing was selected.
    failed = sum(len(run["failed"]) + (run["status"] not in (0, 5)) for run in runs.values())
    print(f"test-gpu: wrote {path}: {sum(run['passed'] for run in runs.values())} passed, {failed} failed")
    return 1 if failed else 0


def conformance(directory: str, backend: str, more: Sequence[str]) -> list[str]:
    """Return the arguments that run the conformance suite on arrays of the GPU."""
    import rankwise_testing.suite as suite

    env = [word for name, value in SHARED.items() for word in ("--env", f"{name}={value}")]
    settings = Path(suite.__file__).with_name("pytest.ini")
    return [
        *("-c", str(settings), "-p", "rankwise_testing.suite.plugin", "--pyargs", "rankwise_testing.suite"),
        *("--backend", backend, "--device", "cuda", "--launch", "processes", "--plugin-module", BACKENDS[backend]),
        *("--report", f"{directory}/{backend}.json", *env, *more),
    ]


def pytest(directory: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """Run pytest, and return what passed, what failed and what was skipped, also where it had to be cut off."""
    report = directory / "report.jsonl"
    report.unlink(missing_ok=True)
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "reporting", *arguments]
    try:
        env = {**os.environ, FILE: str(report), "PYTHONPATH": paths}
        status = subprocess.run(command, cwd=ROOT, env=env, timeout=LIMIT_S, check=False).returncode
    except subprocess.TimeoutExpired:
        status = -1
    told = list(read(report))
    failed = sorted({name for name, outcome, _ in told if outcome == "failed"})
    skipped = {name: why for name, outcome, why in told if outcome == "skipped"}
    return {
        "status": "cut off" if status == -1 else status,
        "passed": len({name for name, outcome, _ in told if outcome == "passed"} - set(failed)),
        "failed": failed,
        "skipped": skipped,
    }


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
    reasons["speed between GPUs"] = "the ranks share one GPU and talk over sockets"
    reasons["NVLink, PCIe peer access and InfiniBand"] = "they need several GPUs, or several machines"
    return reasons


def read_json(path: Path) -> Any:
    """Return the content of a file, or None if it is not there."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
