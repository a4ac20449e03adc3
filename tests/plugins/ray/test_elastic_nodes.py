"""The example of docs/elastic.md: each node of an elastic job is a task of Ray's, and so many of them wait."""

import re
import socket
import subprocess
import sys
from pathlib import Path

from rankwise_network import secret

PAGE = Path(__file__).parents[3] / "docs" / "elastic.md"
TIMEOUT_S = 150
#: Two nodes at a time; what a task gets beyond the page is a name for its output, and where Ray is for once.
CPUS = 4
PROGRAM = """
import os

import numpy as np
import rankwise as dist

dist.init_process_group("gloo", timeout=60)
array = np.ones(4)
dist.all_reduce(array)
with open("ended", "a") as file:
    print(dist.get_rank(), int(array[0]), os.environ["TORCHELASTIC_RESTART_COUNT"], file=file)
dist.destroy_process_group()
"""


def documented(folder, port):
    """Return the example, with addresses, folders and sizes of this machine."""
    section = PAGE.read_text().partition("\n### Under Ray\n")[2]
    (found,) = re.findall(r"```python\n(.*?)```", section.partition("\n### ")[0], re.DOTALL)
    launcher = Path(sys.executable).with_name("rankwise")
    changes = {
        "rankwise run -n 8": f"{launcher} run -n 2 --last-call 1",
        "10.0.0.1:29500": f"127.0.0.1:{port}",
        "train.py": str(folder / "train.py"),
        "num_cpus=8": "num_cpus=2",
        "/home/me": str(folder),
        "ray.init(": f'ray.init("local", num_cpus={CPUS}, include_dashboard=False, _node_ip_address="127.0.0.1", ',
        "check=True": f"check=True, cwd={str(folder)!r}",
    }
    for before, after in changes.items():
        assert before in found, before
        found = found.replace(before, after)
    return found


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_the_example_runs_a_job_of_the_nodes_that_are_there_and_only_once(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "example.py").write_text(documented(tmp_path, free_port()))
    secret.new_file(tmp_path / "job.secret")
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted((tmp_path / "ended").read_text().splitlines()) == [f"{rank} 4 0" for rank in range(4)]
