"""Modules import each other in one direction; the few circles that are left are named here, each with its reason.

Imports within functions and those for types count too: who reads a module has to know what it names. Between rooms the
layer contracts in pyproject.toml say more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "rankwise": "core/rankwise",
    **{
        f"rankwise_{name}": f"plugins/{name}/src/rankwise_{name}"
        for name in (
            *("codec", "dask", "gloo_tcp", "launch", "mpi", "native", "nccl", "ray"),
            *("stores", "testing", "tools", "torch", "watch"),
        )
    },
}
#: Imports that close a circle: who imports whom, and why that is the better way.
DEFENDED = {
    ("rankwise.backends.context", "rankwise.backends.communicator"): "the context of a group may name its parent",
    ("rankwise.backends.fast_calls", "rankwise.backends.communicator"): "a communicator hands its fast calls out",
    ("rankwise.groups.process_group", "rankwise.groups.outside"): "`ProcessGroup.create` is where users look for it",
    ("rankwise.groups.process_group", "rankwise.groups.lifecycle"): "`ProcessGroup.create` calls off what failed",
    ("rankwise.groups.world", "rankwise.groups.process_group"): "a world holds its groups, and a group knows its world",
    ("rankwise_watch.figures", "rankwise_watch.window"): "loaded when the variable that asks for it is set",
    (
        "rankwise_gloo_tcp.collectives.compiled",
        "rankwise_gloo_tcp.collectives.one_host",
    ): "what the compiled parts read of a group's strategy is named by its class",
    (
        "rankwise_gloo_tcp.collectives.between_hosts",
        "rankwise_gloo_tcp.collectives.compiled_wire",
    ): "what makes a strategy between hosts makes the compiled one, which derives from it, where it can",
    (
        "rankwise_gloo_tcp.collectives.several_hosts",
        "rankwise_gloo_tcp.collectives.compiled_relay",
    ): "what makes a strategy for several hosts makes the compiled one, which derives from it, where it can",
    (
        "rankwise_gloo_tcp.collectives.strategy",
        "rankwise_gloo_tcp.communicator",
    ): "what runs a group's calls knows it",
    ("rankwise_nccl.queues.works", "rankwise_nccl.queues.queue"): "a queue holds its works, and a work knows its queue",
    ("rankwise_torch.creation", "rankwise_torch.names"): "names are registered at once, all the rest is loaded later",
    ("rankwise_torch.group", "rankwise_torch.creation"): "a group makes others of its kind",
}


def modules(package: str) -> dict[str, Path]:
    root = ROOT / PACKAGES[package]
    names = {path: (package, *path.relative_to(root).with_suffix("").parts) for path in root.rglob("*.py")}
    return {".".join(parts).removesuffix(".__init__"): path for path, parts in names.items()}


def imports(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield which of the known modules a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in known else node.module


def in_circles(uses: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return what is left when all that is in no circle has been taken away."""
    left = dict(uses)
    while True:
        used: set[str] = set().union(*left.values()) if left else set()
        circling = {
            name: others & left.keys() for name, others in left.items() if name in used and others & left.keys()
        }
        if circling == left:
            return left
        left = circling


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_form_no_circle_but_those_with_a_reason(package):
    known = modules(package)
    uses = {name: set(imports(path, known)) - {name} for name, path in known.items()}
    assert in_circles({name: {o for o in others if (name, o) not in DEFENDED} for name, others in uses.items()}) == {}


def test_each_defended_import_is_there():
    for importer, imported in DEFENDED:
        known = modules(importer.split(".")[0])
        assert imported in imports(known[importer], known)


def test_a_circle_would_be_seen():
    assert in_circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == {"b": {"c"}, "c": {"b"}}
