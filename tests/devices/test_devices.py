"""A kind of device that a plugin brings is known everywhere: in calls, questions, mixed groups, objects, and errors."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.core.asking import answers_that_are_wrong
from tests.devices.conftest import install
from tests.processes import environment

import rankwise as dist
from rankwise.backends import DeviceKind, device_kind_named, device_names, kind_of, to_host
from rankwise.basics import devices
from rankwise.basics.arrays import as_array, device_of
from rankwise.calls import check
from rankwise_arrays import moving
from rankwise_local import LocalCommunicator, local_world

PATIENCE_S = 20.0
SIZE = 3

pytestmark = pytest.mark.usefixtures("installed")


def quantum(values: Any, card: int = 0) -> Any:
    """Return an array of the device."""
    return devices.placed(np.array(values), device_kind_named("quantum"), card)


def on_ranks(program: Callable[[], object], backend: str = "cpu:local,quantum:entangled") -> list[Any]:
    with local_world(SIZE, backend=backend, timeout=PATIENCE_S) as world:
        return world.run(program)


# ---------------------------------------------------------------------- what it is


def test_it_is_recognised_by_its_type_and_has_an_index() -> None:
    array = quantum([1.0, 2.0], 1)
    kind = kind_of(array)
    assert kind is not None
    assert (device_of(array), kind.index(array), kind.count()) == ("quantum", 1, 2)
    assert as_array(array) is array
    assert "quantum" in device_names()
    assert to_host(array).tolist() == [1, 2]


def test_who_does_not_wait_for_a_queue_reads_what_was_there_before() -> None:
    import quantum_sim

    array, gate, host = quantum([1.0]), threading.Event(), np.zeros(1)
    with quantum_sim.queue() as queue:
        queue.put(lambda: gate.wait(0.2))
        array.write(np.array([2.0]))
    array.read(host)  # in another queue
    gate.set()
    assert host.tolist() == [1]


# ---------------------------------------------------------------------- what can be asked


def test_questions_know_it_with_and_without_an_index_and_as_an_array() -> None:
    for device in ("quantum", "quantum:1", quantum([1.0])):
        assert dist.supports("all_reduce", device, "float32", dist.ReduceOp.SUM, backend="entangled")
        assert not dist.supports("send", device, backend="local")
    assert dist.supports("broadcast", "quantum", backend="gloo")
    assert dist.capabilities().filter(device="quantum:0")
    assert dist.BackendConfig("cpu:gloo,quantum:entangled").get_device_backend_map() == {
        "cpu": "gloo",
        "quantum": "entangled",
    }
    with pytest.raises(ValueError, match="did you mean 'quantum'"):
        dist.supports("send", "quantun")


def test_a_table_is_shown_with_it() -> None:
    table = dist.capabilities("entangled")
    assert "quantum" in str(table)
    assert "quantum" in table._repr_html_()


def test_what_goes_by_way_of_the_host_is_said_to() -> None:
    for backend, ways in {"entangled": ["native", "staged", None], "gloo": ["staged", "staged", None]}.items():
        table = dist.capabilities(backend)[backend]
        calls = ("send", "all_reduce", "coalescing")
        assert [table.ask(call, "quantum").how for call in calls] == ways
    assert dist.capabilities("local")["local"].ask("all_reduce", "cpu").how == "derived"


# ---------------------------------------------------------------------- what can be called


def test_a_mixed_group_serves_each_array_where_it_lies() -> None:
    def program() -> list[Any]:
        rank, card = dist.get_rank(), dist.get_rank() % 2
        host, there = np.full(4, rank + 1.0), quantum(np.full(4, rank + 1.0), card)
        dist.all_reduce(host)
        dist.all_reduce(there, dist.ReduceOp.AVG)
        parts = [quantum(np.zeros(2, np.int32), card) for _ in range(SIZE)]
        dist.all_gather(parts, quantum(np.full(2, rank, np.int32), card))
        return [host.tolist(), to_host(there).tolist(), [to_host(part).tolist() for part in parts]]

    assert on_ranks(program) == [[[6.0] * 4, [2.0] * 4, [[0, 0], [1, 1], [2, 2]]]] * SIZE


@pytest.mark.parametrize("async_op", [False, True])
def test_what_the_callers_queue_has_to_do_comes_first(async_op: bool) -> None:
    import quantum_sim

    def program() -> Any:
        array, gate = quantum(np.zeros(3)), threading.Event()
        with quantum_sim.queue() as queue:
            queue.put(lambda: gate.wait(PATIENCE_S))
            array.write(np.full(3, dist.get_rank() + 1.0))
            if async_op:
                work = dist.all_reduce(array, async_op=True)
                assert work is not None
                assert not work.is_completed()
                gate.set()
                work.wait()
            else:
                threading.Timer(0.05, gate.set).start()
                dist.all_reduce(array)
        return to_host(array).tolist()

    assert on_ranks(program) == [[6.0] * 3] * SIZE


def test_messages_go_from_device_to_device_and_a_shorter_one_leaves_the_rest() -> None:
    def program() -> Any:
        if dist.get_rank() == 0:
            dist.send(quantum([5, 6]), 1)
            return None
        if dist.get_rank() == 1:
            array = quantum([1, 2, 3])
            dist.recv(array, 0)
            return to_host(array).tolist()
        return None

    assert on_ranks(program)[1] == [5, 6, 3]


@pytest.mark.parametrize("backend", ["quantum:entangled", "cpu:local,quantum:entangled"])
def test_objects_travel_in_a_group_of_the_device_alone_too(backend: str) -> None:
    def program() -> Any:
        rank = dist.get_rank()
        gathered: list[Any] = [None] * SIZE
        dist.all_gather_object(gathered, {"rank": rank, "more": "x" * rank})
        told = [f"from {rank}" if rank == 1 else None]
        dist.broadcast_object_list(told, 1)
        mine: list[Any] = [None]
        dist.scatter_object_list(mine, list("abc") if rank == 0 else None, 0)
        return [entry["rank"] for entry in gathered], told, mine

    assert on_ranks(program, backend) == [([0, 1, 2], ["from 1"], [letter]) for letter in "abc"]


def test_arrays_of_several_devices_are_reduced_as_one() -> None:
    def program() -> Any:
        arrays = [quantum([1.0, 2.0], card) for card in (0, 1)]
        dist.all_reduce_multigpu(arrays)
        rows = [[quantum([0.0, 0.0], card) for _ in range(2 * SIZE)] for card in (0, 1)]
        dist.all_gather_multigpu(rows, [quantum([dist.get_rank() + card / 2] * 2, card) for card in (0, 1)])
        return [to_host(array).tolist() for array in arrays], [[to_host(out)[0] for out in outs] for outs in rows]

    assert on_ranks(program) == [([[6.0, 12.0]] * 2, [[0, 0.5, 1, 1.5, 2, 2.5]] * 2)] * SIZE


# ---------------------------------------------------------------------- what is done with arrays by themselves


def test_arrays_are_copied_between_cards_the_host_and_dtypes() -> None:
    here, there = quantum([1.5, 2.5], 0), quantum([0, 0], 1)
    assert to_host(moving.assign(there, here)).tolist() == [1, 2]
    near = moving.near(here, there)
    assert device_kind_named("quantum").index(near) == 1  # type: ignore[union-attr]
    assert to_host(near).tolist() == [1.5, 2.5]
    host = np.zeros(2)
    assert moving.assign(host, here) is host
    assert host.tolist() == [1.5, 2.5]
    assert to_host(moving.assign(here, np.array([7, 8]))).tolist() == [7, 8]
    moving.synchronize(here)


def test_arrays_that_share_memory_are_told_by_their_addresses() -> None:
    array = quantum(np.arange(10))
    assert check.touch(array[:6], array[5:])
    assert not check.touch(array[:5], array[5:])
    assert not check.touch(array, quantum(np.arange(10)))
    assert not check.touch(array, np.arange(10))


# ---------------------------------------------------------------------- mistakes


def test_mistakes_name_the_device() -> None:
    def program() -> list[str]:
        said = []
        for call in (
            lambda: dist.all_gather([quantum([0.0]) for _ in range(SIZE)], np.zeros(1)),
            lambda: dist.broadcast(quantum(np.zeros((2, 2)))[:, 0], 0),
            lambda: dist.broadcast_object_list([quantum([0.0])], dist.get_rank()),
        ):
            try:
                call()
            except (ValueError, TypeError) as error:
                said.append(str(error))
        return said

    for kinds, order, among_objects in on_ranks(program):
        assert "float64 on quantum" in kinds
        assert "float64 on cpu" in kinds
        assert "is not C-contiguous" in order
        assert "use the collectives for arrays" in among_objects


def test_a_group_without_a_backend_for_it_says_so() -> None:
    def program() -> None:
        with pytest.raises(ValueError, match="no backend for quantum arrays"):
            dist.all_reduce(quantum([1.0]))

    on_ranks(program, "local")


# ---------------------------------------------------------------------- how it is found


BROKEN = """
import sys
import numpy as np
import rankwise as dist
from rankwise.backends import device_kind_named, device_names
dist.all_reduce  # a name of the calls
print([name for name in ("quantum_sim", "quantum_sim.plugin") if name in sys.modules])
print("quantum" in device_names(), "quantum_sim" in sys.modules)
import quantum_sim
array = quantum_sim.empty(1, float)
from rankwise.basics.arrays import as_array, device_of
print(device_of(as_array(array)), sorted(name for name in ("lost", "odd") if name in device_names()))
for name in ("lost", "odd", "twin"):
    try:
        device_kind_named(name)
    except dist.PluginError as error:
        print(error)
class Elsewhere:
    def __dlpack_device__(self): return 99, 0
    def __dlpack__(self, **more): ...
try:
    as_array(Elsewhere())
except TypeError as error:
    print(error)
"""


def test_one_that_is_broken_is_told_and_disturbs_no_other(tmp_path: Path) -> None:
    path = install(tmp_path, "lost = a_module_that_is_not_there:KIND\nodd = quantum_sim.plugin:QUANTUM\ntwin = a:B\n")
    other = tmp_path / "other-2.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 2.0\n")
    (other / "entry_points.txt").write_text("[rankwise.devices]\ntwin = c:D\n")
    done = subprocess.run(
        [sys.executable, "-c", BROKEN],
        env=environment(*map(Path, path)),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    lazily, asked, found, lost, odd, twin, elsewhere = done.stdout.splitlines()
    assert lazily == "[]"
    assert asked == "True False"
    assert found == "quantum ['lost', 'odd']"
    assert lost.startswith("the devices 'lost' of quantum-sim 1.0 cannot be used: ModuleNotFoundError")
    assert "no DeviceKind called 'odd'" in odd
    assert twin.startswith("the devices 'twin' of other 2.0 and quantum-sim 1.0 cannot be used")
    assert "DLPack's type 99, which nothing installed brings" in elsewhere
    assert "'lost' of quantum-sim 1.0" in elsewhere


def test_a_kind_says_what_it_lacks() -> None:
    assert repr(device_kind_named("quantum")) == "<DeviceKind 'quantum'>"
    with pytest.raises(NotImplementedError):
        DeviceKind().empty(1, float)


# ---------------------------------------------------------------------- kinds that are there for some, or for nobody


def test_a_kind_that_nothing_brings_has_the_arrays_of_the_host(own_backends: None) -> None:
    dist.register_backend("acme", LocalCommunicator, extended_api=True, devices="xenon")
    for device in ("xenon", "xenon:3"):
        assert dist.supports("send", device, "float32", backend="acme")
        assert dist.supports("send", device, "float32")
        assert not dist.supports("send", device, backend="local")
        assert dist.capabilities().ask("send", device)["acme"].supported

    def program() -> Any:
        array, gathered = np.full(2, 1.0), [None] * SIZE
        dist.all_reduce(array, timeout=PATIENCE_S)
        dist.all_gather_object(gathered, dist.get_rank())
        if dist.get_rank() == 0:
            dist.send(array, 1, tag=3)
        elif dist.get_rank() == 1:
            dist.recv(array, 0, tag=3)
        return array.tolist(), gathered

    assert on_ranks(program, "xenon:acme") == [([3.0, 3.0], [0, 1, 2])] * SIZE


MEETING = """
import sys
import numpy as np
import rankwise as dist
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=int(sys.argv[2]), world_size=2, timeout=20)
array = np.ones(3)
dist.all_reduce(array)
print(array.tolist(), "quantum" in dist.BackendConfig("gloo").get_device_backend_map())
dist.destroy_process_group()
"""


def test_ranks_meet_of_which_only_some_have_the_device(tmp_path: Path) -> None:
    there = environment(*map(Path, install(tmp_path / "there")))
    started = [
        subprocess.Popen(
            [sys.executable, "-c", MEETING, str(tmp_path / "store"), str(rank)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, env in enumerate((there, environment()))
    ]
    said = [process.communicate(timeout=PATIENCE_S * 3)[0].strip() for process in started]
    assert said == ["[2.0, 2.0, 2.0] True", "[2.0, 2.0, 2.0] False"]


DEFAULT = """
import sys
import rankwise as dist
print(dist.BackendConfig(), "quantum_sim" in sys.modules)
try:
    print(dist.get_default_backend_for_device("quantum:1"))
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize("others", ["", "quantum = gloo"])
def test_a_distribution_may_name_the_default_of_a_device_but_not_two_and_no_other_device(
    others: str, tmp_path: Path
) -> None:
    path = install(tmp_path, "[rankwise.defaults]\nquantum = entangled\ncpu = entangled\n")
    other = tmp_path / "other-2.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 2.0\n")
    (other / "entry_points.txt").write_text(f"[rankwise.defaults]\nxenon = nobody\n{others}\n")
    env = {**environment(*map(Path, path)), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", DEFAULT], env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    config, default = done.stdout.splitlines()
    if others:
        assert config == "cpu:gloo False"
        assert default.endswith("no default backend for device 'quantum:1' (there is for: cpu, cuda, xenon)")
    else:
        assert config.startswith("cpu:gloo,quantum:entangled ")
        assert default == "entangled"


# ---------------------------------------------------------------------- calls that return arrays


def test_functional_calls_return_arrays_of_the_device() -> None:
    def program() -> list[Any]:
        me, functional = dist.get_rank(), dist.functional
        got = [
            functional.all_reduce(quantum([1.0, me])),
            functional.broadcast(quantum([me]), src=1),
            functional.all_gather(quantum([me, 7])),
            functional.all_gather(quantum([me] * (1 + me)), axis=0),
            functional.all_gather(quantum([[me] * (1 + me)]), axis=1),
            functional.reduce_scatter(quantum([1, 2, 3, 4])),
            functional.all_to_all(quantum([10 * me + to for to in range(SIZE)])),
            functional.permute(quantum([me + 1]), [(0, 1)]),
            functional.scan(quantum([me + 1])),
        ]
        assert all(device_of(array) == "quantum" for array in got)
        return [to_host(array).tolist() for array in got]

    told = on_ranks(program)
    assert told[1] == [
        *([3.0, 3.0], [1], [[0, 7], [1, 7], [2, 7]], [0, 1, 1, 2, 2, 2], [[0, 1, 1, 2, 2, 2]]),
        *([9], [1, 11, 21], [1], [3]),
    ]


def test_answers_about_it_are_what_calls_do() -> None:
    with local_world(2, backend="quantum:entangled", timeout=PATIENCE_S) as world:
        assert world.run(lambda: answers_that_are_wrong("entangled", 300, 4, "quantum")) == [[], []]
