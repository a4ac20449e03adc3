"""What Slurm tells of a step's nodes, and of a batch script, which is no step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count

__all__ = ["expand_nodes", "first_node", "is_batch_script", "tasks_of_batch_script"]

_NODE_LISTS = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
#: The nodes of a component of a heterogeneous job, before and after Slurm renamed them.
_COMPONENTS = ("SLURM_JOB_NODELIST_HET_GROUP_{}", "SLURM_JOB_NODELIST_PACK_GROUP_{}")
#: What some versions give a batch script as the number of its step.
_BATCH_STEP = str((1 << 32) - 5)

_MAX_NODES = 1 << 16


def is_batch_script(env: Mapping[str, str]) -> bool:
    """Tell whether this is a job's batch script, or was started by it without srun: the one process that there is."""
    step = env.get("SLURM_STEP_ID") or env.get("SLURM_STEPID") or ""
    return bool(env.get("SLURM_JOB_ID")) and not env.get("SLURM_STEP_NUM_TASKS") and step in ("", _BATCH_STEP)


def tasks_of_batch_script(env: Mapping[str, str]) -> int:
    """Return 1, for a job of one task, which needs no srun.

    Raises:
        ValueError: The job is to have several, and nobody has started them.
    """
    tasks = env.get("SLURM_NTASKS") or env.get("SLURM_TASKS_PER_NODE", "")
    if tasks == "1":
        return 1
    raise ValueError(
        f"env://: this process runs in the batch script of Slurm's job {env.get('SLURM_JOB_ID', '')}, but srun has not "
        f"started it: the others of the job's tasks ({tasks or 'an unknown number'}) are not there. In the script, "
        "write `srun python program.py`, or `rankwise run -n N program.py` for ranks on this node; for a world of "
        "one, pass rank=0 and world_size=1"
    )


def first_node(env: Mapping[str, str]) -> str:
    """Return where rank 0 runs, "" where Slurm tells of no nodes.

    Raises:
        ValueError: It cannot be told.
    """
    text = next((env[name] for name in _NODE_LISTS if env.get(name)), "")
    if not text:
        return ""
    nodes = expand_nodes(text)
    if len(nodes) == 1:
        return "127.0.0.1"  # all on this very host: no need to find out under which name it knows itself
    if env.get("SLURM_DISTRIBUTION", "").startswith("arbitrary"):
        return _first_of_file(env.get("SLURM_HOSTFILE", ""))
    if env.get("SLURM_HET_SIZE"):
        return _first_of_components(env, nodes)
    return nodes[0]


def _first_of_file(path: str) -> str:
    """Return the first node of a host file: the lists in the environment are sorted, and the ranks are not."""
    try:
        # opens: files that a command line, or a launcher's variable, names
        with open(path, encoding="utf-8") as file:
            lines = [line.partition("#")[0].strip() for line in file.read(1 << 20).splitlines()]
        return expand_nodes(next(filter(None, lines), "").partition("*")[0])[0]
    except (OSError, ValueError) as error:
        raise ValueError(
            "env://: with srun -m arbitrary only a host file tells where rank 0 is, "
            f"and SLURM_HOSTFILE={path[:200]!r} cannot be read ({error}): set it, or MASTER_ADDR"
        ) from None


def _first_of_components(env: Mapping[str, str], nodes: list[str]) -> str:
    """Return the first node of the first component that takes part in this step, which has rank 0."""
    for number in count():
        listed = next((env[name] for name in (form.format(number) for form in _COMPONENTS) if env.get(name)), "")
        if not listed:
            return nodes[0]
        first = expand_nodes(listed)[0]
        if first in nodes:
            return first
    raise AssertionError


def expand_nodes(text: str) -> list[str]:
    """Return the names in a Slurm node list such as "node[01-04,7],gpu1".

    Raises:
        ValueError: It is not one.
    """
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\]?)+", text):
        if not re.fullmatch(r"(?:[^\[\]]|\[[^\[\]]*\])+", part):
            raise ValueError(f"{text[:200]!r} is not a node list: its brackets do not match")
        prefixes = [""]
        for plain, ranges in re.findall(r"([^\[\]]+)|\[([^\[\]]*)\]", part):
            choices = [plain] if plain else _expand(ranges, text)
            if len(prefixes) * len(choices) + len(names) > _MAX_NODES:
                raise ValueError(f"{text[:200]!r} lists too many nodes")
            prefixes = [prefix + choice for prefix in prefixes for choice in choices]
        names += prefixes
    if not names:
        raise ValueError(f"{text[:200]!r} is not a node list: it is empty")
    return names


def _expand(ranges: str, text: str) -> list[str]:
    numbers: list[str] = []
    for piece in ranges.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", piece)
        if match is None:
            raise ValueError(f"{text[:200]!r} is not a node list: {piece[:40]!r} is no range of numbers")
        first, last = match[1], match[2] or match[1]
        if not 0 <= int(last) - int(first) < _MAX_NODES:
            raise ValueError(f"{text[:200]!r} is not a node list: {piece[:40]!r} is no range of numbers")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers
