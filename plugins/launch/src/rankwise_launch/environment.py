"""The environment of each rank, under the names that torchrun uses."""

from __future__ import annotations

import os
from dataclasses import dataclass

from rankwise_launch.config import LaunchConfig


@dataclass(frozen=True)
class Layout:
    """Where the ranks of one attempt are.

    Attributes:
        first_rank: The global rank of this node's local rank 0.
        world_size: Number of ranks on all nodes.
        master_addr: Where the ranks meet.
        master_port: Where the ranks meet.
        attempt: How often the ranks have been restarted, or the one that this is for.
        run_id: The name of the run.
        store: Where they meet: the port at which the launcher of node 0 serves a store for them, or the URL of one on
            a server; "" if rank 0 is to serve it.
        nodes: Number of nodes.
        node: Which of them this is.
    """

    first_rank: int
    world_size: int
    master_addr: str
    master_port: int
    attempt: int
    run_id: str
    store: str = ""
    nodes: int = 1
    node: int = 0


def rank_environment(config: LaunchConfig, layout: Layout, local_rank: int, secret_fd: int) -> dict[str, str]:
    """Return the whole environment of one rank: this process's own, with the rank's place in it."""
    return {**job_environment(config, secret_fd), **_place(config, layout, local_rank)}


def job_environment(config: LaunchConfig, secret_fd: int) -> dict[str, str]:
    """Return what is the same for all ranks of this node."""
    environment = dict(os.environ)
    # One way to the secret only; and the secret itself is in neither.
    environment.pop("RANKWISE_SECRET_FILE", None)
    environment["RANKWISE_SECRET_FD"] = str(secret_fd)
    environment.pop("RANKWISE_STORE", None)  # of a launcher around this one
    # Lines appear when they are printed, and those of a rank that is killed are not lost.
    environment.setdefault("PYTHONUNBUFFERED", "1")
    # A rank that a signal such as SIGSEGV ends says where it was.
    environment.setdefault("PYTHONFAULTHANDLER", "1")
    if config.nproc_per_node > 1:
        # As torchrun does: ranks that each take all cores slow each other down.
        environment.setdefault("OMP_NUM_THREADS", "1")
    return environment


def _place(config: LaunchConfig, layout: Layout, local_rank: int) -> dict[str, str]:
    rank = str(layout.first_rank + local_rank)
    size = str(layout.world_size)
    master = f"{layout.master_addr}:{layout.master_port}"
    return {
        # For rankwise alone, and only as long as the program means this master, and not one that it has chosen.
        **({"RANKWISE_STORE": f"{layout.store}@{master}"} if layout.store else {}),
        "RANK": rank,
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": str(config.nproc_per_node),
        "GROUP_RANK": str(layout.node),
        "GROUP_WORLD_SIZE": str(layout.nodes),
        "ROLE_RANK": rank,
        "ROLE_NAME": config.role,
        "ROLE_WORLD_SIZE": size,
        "MASTER_ADDR": layout.master_addr,
        "MASTER_PORT": str(layout.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(layout.attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts),
        "TORCHELASTIC_RUN_ID": layout.run_id,
        # At MASTER_PORT nobody serves a store: rank 0 of a torch program does that itself, and has to know it.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
