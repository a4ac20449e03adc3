"""One Slurm for all tests of a file, and no job left of any test: for what `scripts/test-slurm` runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cluster import PROGRAMS, RANKWISE, Cluster


@pytest.fixture(scope="module", params=["networks", "loopback"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Nodes with addresses of their own; and all on one host, where only shared ports tell them apart."""
    folder, networked = tmp_path_factory.mktemp(request.param), request.param == "networks"
    with Cluster(folder, 3, networked, lambda: float(request.config.slowness)) as running:  # type: ignore[attr-defined]
        yield running


@pytest.fixture(autouse=True)
def nothing_left(cluster: Cluster) -> Iterator[None]:
    """See that a test leaves no job behind, even if it fails."""
    yield
    cluster.cancel_all()

    def running() -> str:
        return subprocess.run(["pgrep", "-af", str(PROGRAMS)], capture_output=True, text=True, check=False).stdout

    cluster.wait_for("no rank to be left", lambda: not running(), running)  # one that is killed has to get to it
    assert not list(cluster.work.glob("*.secret"))


@pytest.fixture
def secret(cluster: Cluster) -> Iterator[dict[str, str]]:
    """Return what names a job secret, for steps without a batch script."""
    path = cluster.work / "test.secret"
    subprocess.run([RANKWISE, "secret", "new", str(path)], check=True)
    yield {"RANKWISE_SECRET_FILE": str(path)}
    path.unlink()
