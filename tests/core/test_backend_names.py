"""`Backend`, `register_backend`, `BackendConfig`: names that are checked."""

from datetime import timedelta

import numpy as np
import pytest

import rankwise as dist
from rankwise import Backend, BackendConfig, Context, HashStore
from rankwise.backends.capability import Capabilities
from rankwise.backends.cells import Device, native
from rankwise.backends.registry import registry
from rankwise_local import LocalCommunicator


@pytest.fixture
def toy(own_backends):
    """A backend `toy` for cpu and cuda."""
    dist.register_backend("toy", LocalCommunicator, extended_api=True, devices=["cpu", "cuda"])


def test_names_are_strings_in_lower_case(toy):
    assert Backend("GLOO") == "gloo" == Backend.GLOO
    assert Backend("Toy") == Backend.TOY == "toy"
    assert isinstance(Backend.TOY, Backend)
    assert isinstance(Backend.MPI, str)
    assert Backend.UNDEFINED == "undefined"


def test_the_class_knows_all_names(toy):
    assert {"gloo", "mpi", "nccl", "local", "toy"} <= set(Backend)
    assert "toy" in Backend
    assert "TOY" in Backend
    assert "nonsense" not in Backend
    assert 3 not in Backend
    assert Backend.backend_list == [str(name) for name in Backend]
    assert len(Backend) == len(list(Backend))
    assert Backend.backend_capability["toy"] == ["cpu", "cuda"]
    assert Backend.default_device_backend_map["cpu"] == "gloo"


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("tcp", ValueError, "use 'gloo' or 'mpi'"),
        (3, ValueError, "string"),
        (None, ValueError, "string"),
        ("loocal", dist.BackendNotFoundError, "did you mean 'local'"),
        ("glooo", ValueError, "did you mean 'gloo'"),
    ],
)
def test_a_wrong_name_is_explained(name, error, words):
    with pytest.raises(error, match=words):
        Backend(name)


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = Backend.NONSENSE
    assert not hasattr(Backend, "_private")


def test_the_plain_signature_gets_store_rank_size_and_timeout(own_backends):
    got = []

    def create(store, rank, size, timeout):
        got.append((rank, size, timeout))
        return LocalCommunicator(Context.plain(store, rank, size, timeout))

    dist.register_backend("plain", create, devices="cpu")
    assert Backend.backend_capability["plain"] == ["cpu"]
    dist.init_process_group("plain", rank=0, world_size=1, timeout=5)
    dist.all_reduce(np.ones(2))
    assert got == [(0, 1, timedelta(seconds=5))]
    assert dist.group.WORLD.communicators()[0].context.name == "default"


def test_a_name_is_taken_once_unless_replaced_on_purpose(toy):
    with pytest.raises(ValueError, match="already registered in this process"):
        dist.register_backend("TOY", LocalCommunicator)
    table = Capabilities("toy", {"cpu": Device(native("send"))})
    Backend.register_backend("toy", LocalCommunicator, True, capabilities=table, replace=True)
    assert dist.supports("send", "cpu", backend="toy")
    assert not dist.supports("recv", "cpu", backend="toy")


@pytest.mark.parametrize("name", ["tcp", "undefined", "two words", "", 7])
def test_what_cannot_be_a_name_is_refused(name):
    with pytest.raises(ValueError, match="cannot be the name"):
        dist.register_backend(name, LocalCommunicator)


def test_a_config_says_which_backend_serves_which_device(toy):
    assert BackendConfig("toy").device_backend_map == {"cpu": "toy", "cuda": "toy"}
    assert str(BackendConfig("toy")) == "toy"
    both = BackendConfig("cpu:local,cuda:toy")
    assert both.get_device_backend_map() == {"cpu": "local", "cuda": "toy"}
    assert repr(both) == str(both) == "cpu:local,cuda:toy"
    assert str(BackendConfig("cpu:toy")) == "cpu:toy"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cpu:local,cpu:toy", "'cpu' twice"),
        ("cuda:local", "does not serve device 'cuda'"),
        ("cpu:", "must read like"),
        ("cpu:nonsense", "no backend 'nonsense'"),
    ],
)
def test_a_contradictory_config_is_refused(toy, text, words):
    with pytest.raises(ValueError, match=words):
        BackendConfig(text)


def test_registering_one_backend_changes_nothing_for_others(toy):
    assert dist.get_default_backend_for_device("cpu") == "gloo"
    assert dist.get_default_backend_for_device("cuda:1") == "nccl"
    with pytest.raises(ValueError, match="no default backend"):
        dist.get_default_backend_for_device("tpu")


def test_availability_tells_why_not(toy):
    assert dist.is_available()
    assert dist.is_backend_available("local")
    assert dist.is_backend_available("cpu:local,cuda:toy")
    missing = dist.availability("cpu:local,cuda:nonsense")
    assert not missing
    assert "nonsense" in missing.reason


def test_a_failing_availability_check_is_an_answer(own_backends):
    from rankwise import API_VERSION, BackendSpec

    def fails():
        raise OSError("the library is damaged")

    table = Capabilities("sick", {"cpu": Device(native("send"))})
    registry.register(BackendSpec("sick", API_VERSION, table, LocalCommunicator, fails))
    assert "the library is damaged" in dist.availability("sick").reason
    with pytest.raises(dist.BackendUnavailableError, match="damaged"):
        dist.init_process_group("sick", store=HashStore(), rank=0, world_size=1)
