"""What runs elsewhere when somebody pushes: pinned, with the least that it may do, on every system that is named."""

import re

import pytest
import yaml
from tests.packaging.conftest import ROOT

WORKFLOWS = {path.name: path.read_text() for path in ROOT.glob(".github/workflows/*.y*ml")}
PINNED = re.compile(r"(?:\./\S+|[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)$")
#: Which jobs may write what, and why no other can do it.
WRITES = {
    ("release.yml", "signed"): {"id-token", "attestations"},
    ("release.yml", "published"): {"id-token"},
    ("release.yml", "announced"): {"contents"},
}
#: These hand the rights of the repository to what strangers propose.
DANGEROUS = {"pull_request_target", "workflow_run", "issue_comment"}


def faults(name, text):
    """Return what is wrong with a workflow."""
    read = yaml.safe_load(text)
    events = read[True]  # so YAML reads `on`
    yield from (f"{event} is dangerous" for event in DANGEROUS.intersection(events))
    if read.get("permissions", "all") not in ({}, {"contents": "read"}):
        yield "the workflow's permissions are not the least"
    for line in re.findall(r"^\s*(?:- )?uses: *(.*)$", text, re.MULTILINE):
        if not PINNED.match(line):
            yield f"{line} is not pinned"
    for job, told in read["jobs"].items():
        yield from (f"{job}: {fault}" for fault in faults_of_job(told, WRITES.get((name, job), set())))


def faults_of_job(told, may_write):
    if {what for what, right in told.get("permissions", {}).items() if right != "read"} != may_write:
        yield "it may write what it need not"
    if "uses" not in told and "timeout-minutes" not in told:
        yield "it has no limit of time"
    for step in told.get("steps", []):
        used, run = step.get("uses", ""), step.get("run", "")
        if "${{" in run:
            yield "a command holds what somebody else may write"
        if "actions/checkout@" in used and (may_write or step.get("with", {}).get("persist-credentials") is not False):
            yield "it checks out with rights"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_is_pinned_and_may_do_the_least(name):
    assert list(faults(name, WORKFLOWS[name])) == []


@pytest.mark.parametrize(
    ("was", "becomes", "fault"),
    [
        (r" # v7\.0\.1", "", "is not pinned"),
        (r"checkout@\w+ # v7\.0\.1", "checkout@v7", "checkout@v7 is not pinned"),
        (r"permissions:\n  contents: read\n\n", "", "the workflow's permissions are not the least"),
        (r"contents: read", "contents: write", "the workflow's permissions are not the least"),
        (r"\n  pull_request:", "\n  pull_request_target:", "pull_request_target is dangerous"),
        (r"doctor --quick", "doctor ${{ github.head_ref }}", "a command holds what somebody else may write"),
        (r"persist-credentials: false", "fetch-depth: 0", "it checks out with rights"),
        (r"    timeout-minutes: 20\n", "", "it has no limit of time"),
        (r"    timeout-minutes: 20\n", "    timeout-minutes: 20\n    permissions: {id-token: write}\n", "it may write"),
    ],
)
def test_what_is_wrong_is_found(was, becomes, fault):
    worse, count = re.subn(was, becomes, WORKFLOWS["systems.yml"], count=1)
    assert count
    (found,) = faults("systems.yml", worse)
    assert fault in found


def test_a_job_that_may_write_checks_nothing_out():
    worse = WORKFLOWS["release.yml"].replace("actions/download-artifact@", "actions/checkout@")
    found = list(faults("release.yml", worse))
    assert {fault.partition(":")[0] for fault in found} >= {job for _, job in WRITES}


def test_every_supported_python_is_tried_on_every_system():
    matrix = yaml.safe_load(WORKFLOWS["systems.yml"])["jobs"]["portability"]["strategy"]["matrix"]
    supported = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert matrix["python"] == [*supported, "3.14t"]
    assert [system.partition("-")[0] for system in matrix["os"]] == ["ubuntu", "macos", "windows"]


def test_nothing_is_signed_but_what_was_tried_built_and_joined():
    jobs = yaml.safe_load(WORKFLOWS["release.yml"])["jobs"]
    assert jobs["tried"]["uses"] == "./.github/workflows/systems.yml"
    assert jobs["joined"]["needs"] == ["tried", "built"]
    order = ["joined", "signed", "published", "announced"]
    assert [jobs[job]["needs"] for job in order[1:]] == order[:-1]
    assert all(jobs[job]["if"] == "github.ref_type == 'tag'" for job in order[1:]), "a dry run signs nothing"


def test_the_files_that_workflows_name_are_there():
    named = {path for text in WORKFLOWS.values() for path in re.findall(r"(?:scripts|tests|\./plugins)/[\w/.]+", text)}
    assert len(named) > 5
    assert [path for path in named if not (ROOT / path).exists()] == []
