"""What a backend's own runtime tells of a process is checked as its declaration is; and what the default backend is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rankwise as dist
from rankwise.backends import BackendSpec, Capabilities, Device, Runtime, native
from rankwise.kits import registry
from rankwise_local import LocalCommunicator

TABLE = Capabilities("acme", {"cpu": Device(native("send", "recv"))})


def register(name: str, runtime: Callable[[float], Any] | None = None) -> None:
    table = Capabilities(name, TABLE.devices)
    registry.register(BackendSpec(name, 1, table, LocalCommunicator, runtime=runtime))


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    for name in registry.names():
        if registry.provider(name) == "this process" and name.startswith("acme"):
            registry.unregister(name)


#: What a runtime answers, and what is said of that.
ANSWERS: dict[str, tuple[Callable[[float], Any], str]] = {
    "nothing": (lambda _: None, "has returned nothing, but must return a Runtime"),
    "a tuple": (lambda _: (0, 1), "has returned a tuple"),
    "a text for a rank": (lambda _: Runtime("0", 1), "the rank '0', which is no integer"),  # type: ignore[arg-type]
    "a half for a size": (lambda _: Runtime(0, 1.5), "the size 1.5, which is no integer"),  # type: ignore[arg-type]
    "a rank below": (lambda _: Runtime(-1, 1), "has returned rank -1 of 1"),
    "a rank too many": (lambda _: Runtime(2, 2), "has returned rank 2 of 2"),
    "a job by its name": (lambda _: Runtime(0, 1, None, "7"), "the job '7', which is no function"),  # type: ignore[arg-type]
    "an error": (lambda _: 1 // 0, "has failed: ZeroDivisionError"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_runtime_that_makes_no_sense_is_told_as_its_plugins(answer: str) -> None:
    runtime, words = ANSWERS[answer]
    register("acme", runtime)
    with pytest.raises(dist.PluginError, match="backend 'acme', from this process: `runtime`") as caught:
        dist.init_process_group("acme")
    assert words in str(caught.value)


def test_what_a_runtime_raises_for_its_users_comes_as_it_is() -> None:
    def late(timeout_s: float) -> Runtime:
        raise dist.DistTimeoutError(f"nobody came within {timeout_s:g} s")

    register("acme", late)
    with pytest.raises(dist.DistTimeoutError, match="nobody came within 7 s"):
        dist.init_process_group("acme", timeout=7)


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if none of our own backends were installed."""
    ours = ("gloo", "mpi", "nccl", "local")
    answer, names = registry._here, registry.names
    monkeypatch.setattr(registry, "names", lambda: [name for name in names() if name not in ours])
    no = dist.Availability(False, "it is not installed")
    monkeypatch.setattr(registry, "_here", lambda name, within_s: no if name in ours else answer(name, within_s))


@pytest.mark.usefixtures("absent")
def test_the_only_backend_that_can_run_is_the_default() -> None:
    register("acme")
    assert dist.BackendConfig().get_device_backend_map() == {"cpu": "acme"}


@pytest.mark.usefixtures("absent")
def test_where_several_could_each_is_named() -> None:
    register("acme")
    register("acme2")
    with pytest.raises(dist.BackendUnavailableError, match=r"'acme' can, if .*'acme2' can, if init"):
        dist.BackendConfig()
