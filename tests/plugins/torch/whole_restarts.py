"""Jobs that torchrun starts again after a rank was killed."""

import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

_PROGRAM = """
import os, signal, torch, torch.distributed as dist
import rankwise_torch
dist.init_process_group("rankwise")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
pair = dist.new_group()
marker = os.environ["MARKER"]
for step in range(4):
    model(torch.ones(1, 4)).sum().backward()
    dist.barrier(pair)
    if step == 2 and dist.get_rank() == 1 and not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
print("trained\\n", end="", flush=True)
dist.destroy_process_group()
"""


def _port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


_RENDEZVOUS = "--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:{port} --rdzv-id=job --max-restarts=2"
_TWO = f"--nproc-per-node=1 {_RENDEZVOUS} --rdzv-conf=last_call_timeout=5"
_WAYS = {
    "static": ["--nproc-per-node=2 --max-restarts=1 --master-port={port}"],
    "standalone": ["--nproc-per-node=2 --max-restarts=1 --standalone"],
    "two nodes": [f"--nnodes=2 {_TWO}"] * 2,
    "two nodes of two": [f"--nnodes=1:2 {_TWO}"] * 2,
    "one node of two": [f"--nnodes=1:2 --nproc-per-node=2 {_RENDEZVOUS} --rdzv-conf=last_call_timeout=1"],
}


@pytest.mark.parametrize("way", _WAYS)
def test_restarts(way, tmp_path):
    """Both ranks train to the end in the second attempt."""
    program, port = tmp_path / "program.py", _port()
    program.write_text(_PROGRAM, encoding="utf-8")
    env = {**os.environ, "MARKER": str(tmp_path / "killed"), "OMP_NUM_THREADS": "1"}
    agents = []
    for number, options in enumerate(_WAYS[way]):
        command = [sys.executable, "-m", "torch.distributed.run", *options.format(port=port).split(), str(program)]
        out = open(tmp_path / f"agent{number}", "w+", encoding="utf-8")  # noqa: SIM115 - closed below, with the others
        agents.append((subprocess.Popen(command, stdout=out, stderr=out, env=env, start_new_session=True), out))
    try:
        deadline = time.monotonic() + 150
        for agent, _ in agents:
            agent.wait(max(1, deadline - time.monotonic()))
    finally:
        said = ""
        for agent, out in agents:
            if agent.poll() is None:
                os.killpg(agent.pid, signal.SIGKILL)
                agent.wait()
            out.seek(0)
            said += out.read()
            out.close()
    assert len(re.findall("^trained$", said, re.MULTILINE)) == 2, said[-3000:]
