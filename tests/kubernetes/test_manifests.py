"""The manifests say what published schemas know, their command lines make sense, and the image ends in good order."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rankwise_launch.config import UNNUMBERED
from rankwise_launch.options import add_options, to_config

EXAMPLES = Path(__file__).parents[2] / "examples" / "kubernetes"
#: The fields that the manifests use with their types, as the published schemas of these kinds have them.
FIELDS = json.loads(Path(__file__).with_name("fields.json").read_text())
MANIFESTS = [
    (path.name, found) for path in sorted(EXAMPLES.glob("*.yaml")) for found in yaml.safe_load_all(path.read_text())
]
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
PATIENCE_S = 60.0


def fields(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all fields of a manifest with their values."""
    if path:
        yield path, value
    if isinstance(value, dict):
        for name, inner in value.items():
            if path or name == "spec":
                yield from fields(inner, f"{path}.{name}".lstrip("."))
    if isinstance(value, list):
        for inner in value:
            yield from fields(inner, f"{path}[]")


@pytest.mark.parametrize(("name", "manifest"), MANIFESTS, ids=lambda value: value if isinstance(value, str) else "")
def test_manifests_have_fields_that_their_kinds_know(name: str, manifest: dict[str, Any]) -> None:
    known = FIELDS[manifest["kind"]]
    assert {"apiVersion", "kind", "metadata", "spec"} == set(manifest)
    for path, value in fields(manifest):
        assert path in known, f"{name}: {path}"
        choices = known[path].split("|")
        wanted = TYPES.get(known[path], (int, str) if known[path] == "int-or-string" else str)
        assert isinstance(value, wanted), f"{name}: {path} is {value!r}"
        assert not isinstance(value, bool) or wanted is bool, f"{name}: {path} is {value!r}"
        assert len(choices) == 1 or value in choices


def containers(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the containers anywhere in a manifest that run the launcher."""
    for path, found in fields(value):
        if path.endswith(("containers[]", "spec.trainer")):
            words = found.get("args") or found.get("command") or []
            if "train.py" in words and "mpirun" not in words:
                yield found


def launched(manifest: dict[str, Any], monkeypatch: pytest.MonkeyPatch, **told: str) -> Any:
    """Return what the launcher makes of a container's command line, where a pod is told this."""
    (container,) = containers(manifest)
    for name in ("PET_NNODES", "PET_NODE_RANK", "LWS_WORKER_INDEX", "JOB_COMPLETION_INDEX", "SLURM_NODEID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    words = container.get("args") or container["command"][2:]
    expanded = [re.sub(r"\$\((\w+)\)", lambda found: told[found[1]], word) for word in words]
    parser = argparse.ArgumentParser()
    add_options(parser)
    return to_config(parser.parse_args(expanded))


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("Job", {"JOB_COMPLETION_INDEX": "2"}),
        ("JobSet", {"JOB_COMPLETION_INDEX": "2", "COORDINATOR": "train-0.train"}),
        ("LeaderWorkerSet", {"LWS_GROUP_SIZE": "4", "LWS_WORKER_INDEX": "2", "LWS_LEADER_ADDRESS": "train-0.train"}),
        (
            "TrainJob",
            {
                "PET_NNODES": "4",
                "PET_NPROC_PER_NODE": "8",
                "PET_NODE_RANK": "2",
                "PET_MASTER_ADDR": "train-0.train",
                "PET_MASTER_PORT": "29500",
            },
        ),
    ],
)
def test_each_pods_launcher_knows_its_place(kind: str, told: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    (manifest,) = [each for name, each in MANIFESTS if each["kind"] == kind and name != "elastic-job.yaml"]
    config = launched(manifest, monkeypatch, **told)
    assert (config.nnodes, config.node_rank, config.nproc_per_node) == (4, 2, 8)
    assert (config.master_addr, config.master_port) == ("train-0.train", 29500)
    assert config.command == ("train.py",)
    graces = [value for path, value in fields(manifest) if path.endswith("terminationGracePeriodSeconds")]
    assert all(config.grace_s < grace for grace in graces)


def test_the_launchers_of_an_elastic_job_number_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    (manifest,) = [each for name, each in MANIFESTS if name == "elastic-job.yaml" and each["kind"] == "Job"]
    config = launched(manifest, monkeypatch, JOB_COMPLETION_INDEX="5")
    assert (config.elastic, config.min_nodes, config.nnodes, config.node_rank) == (True, 2, 8, UNNUMBERED)
    assert (config.master_addr, config.master_port, config.grace_s) == ("train-0.train", 29500, 20.0)


def test_what_the_command_line_says_goes_before_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_NNODES", "4")
    monkeypatch.setenv("PET_MASTER_ADDR", "elsewhere")
    parser = argparse.ArgumentParser()
    add_options(parser)
    assert to_config(parser.parse_args(["--nnodes", "1", "train.py"])).nnodes == 1
    assert to_config(parser.parse_args(["--standalone", "train.py"])).nnodes == 1


def test_the_dockerfile_is_short_and_in_order() -> None:
    """What linters of such files ask for: pinned bases and packages, no caches, commands as lists."""
    lines = [line for line in (EXAMPLES / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    words = [line.split(maxsplit=1) for line in lines]
    assert len(lines) <= 15
    assert words[0][0] == "FROM"
    assert re.fullmatch(r"python:3\.\d+-slim", words[0][1])
    assert {word for word, _ in words} <= {"FROM", "RUN", "WORKDIR", "COPY", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
    for word, rest in words:
        if word == "RUN":
            assert "pip install --no-cache-dir" in rest
            assert "~=" in rest
        elif word in ("ENTRYPOINT", "CMD"):
            assert isinstance(json.loads(rest), list)
        elif word == "WORKDIR":
            assert rest.startswith("/")
        elif word == "COPY":
            assert (EXAMPLES / rest.split()[0]).exists()


PROGRAM = """
import os, signal, sys, time
import rankwise as dist

def last_words(number, frame):
    print("rank", dist.get_rank(), "saves", flush=True)
    dist.destroy_process_group()
    sys.exit(0)

signal.signal(signal.SIGTERM, last_words)
dist.init_process_group("gloo")
dist.barrier()
print("rank", dist.get_rank(), "works", flush=True)
while True:
    time.sleep(0.05)
"""


def test_process_1_of_a_pod_passes_sigterm_on_and_waits(tmp_path: Path) -> None:
    """As a container ends: process 1 gets SIGTERM, and has a grace. The kernel ends all the rest with it."""
    namespace = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if not shutil.which("unshare") or subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine permits no namespaces of processes")
    (tmp_path / "train.py").write_text(PROGRAM)
    run = [sys.executable, "-m", "rankwise", "run", "-n", "2", "--grace", "20", "train.py"]
    process = subprocess.Popen(
        [*namespace, *run], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )
    try:
        assert process.stdout is not None
        said = [process.stdout.readline(), process.stdout.readline()]
        assert all("works" in line for line in said), said
        (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        subprocess.run(["kill", "-TERM", first], check=True)
        rest, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert rest.count("saves") == 2, rest
    assert process.returncode == 128 + signal.SIGTERM
