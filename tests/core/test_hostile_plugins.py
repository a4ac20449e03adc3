"""A hundred plugins that do what no plugin should, installed side by side: no listing, backend or program is hurt.

The table is what is wrong times where it happens. All are installed together, so that each has to leave all others
alone, and a handful of processes asks them.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests import fresh, warm
from tests.by_reference import command, returned
from tests.processes import environment

import rankwise as dist
import rankwise_local  # noqa: F401  # registers the backend `local`
from rankwise.backends.registry import registry

PATIENCE_S = 110.0

HEAD = """
import os, sys
from rankwise.backends import *
from rankwise.backends import hookimpl
class Odd(BaseException): pass
class Mute(Exception):
    def __str__(self): raise SystemExit("no message")
def fault():
    FAULT
    return VALUE
OPS = {**native("send", "recv"), **derived(*COLLECTIVES)}
TABLE = Capabilities("NAME", {"cpu": Device(OPS, native("tags"))})
def create(context): raise DistError
"""
PLACES = {
    "import": "fault()\n@hookimpl\ndef rankwise_backend(): return BackendSpec('NAME', 1, TABLE, create)\n",
    "declaration": "@hookimpl\ndef rankwise_backend(): fault(); return BackendSpec('NAME', 1, TABLE, create)\n",
    "availability": (
        "def asked(): fault(); return Availability(True)\n"
        "@hookimpl\ndef rankwise_backend(): return BackendSpec('NAME', 1, TABLE, create, asked)\n"
    ),
    "condition": (
        "TABLE = Capabilities('NAME', {'cpu': Device(conditional('send', 'recv', reason='a driver', holds=fault))})\n"
        "@hookimpl\ndef rankwise_backend(): return BackendSpec('NAME', 1, TABLE, create)\n"
    ),
}
#: What is done, and whether a process that asks for it can go on.
FAULTS = {
    **{
        f"raises {name}": f"raise {name}"
        for name in ("ValueError('x')", "SystemExit(7)", "GeneratorExit", "Odd", "Mute")
    },
    **{
        f"raises {name}": f"raise {name}"
        for name in ("RecursionError", "MemoryError", "ImportError('y')", "StopIteration")
    },
    "divides": "1 / 0",
    "is told in colours": "raise ValueError('\\x1b[31m' + 'long ' * 9000 + '\\udcff\\n')",
    "exits": "sys.exit('good-bye')",
    "prints": "print('{garbage'); print('}', file=sys.stderr); os.write(1, b'\\xff\\n'); os.write(2, b'[')",
    "closes what it is to print to": "sys.stdout.close(); sys.stderr = None",
}
#: Those end or stop the process itself: the listing and programs that ask for another backend must not mind.
DEADLY = {
    "ends the process": "os._exit(3)",
    "is killed": "os.kill(os.getpid(), 9)",
    "stands still": "import time; time.sleep(600)",
}
#: What the listing says of each of them, in the order of `DEADLY`.
TOLD = (
    "it has ended the process that asked it",
    "it has ended the process that asked it, by SIGKILL",
    "it has not answered within 20 s",
)
#: What stands for a declaration, and the word of the message that names the field.
NONSENSE = {
    "None": "rankwise_backend() has returned nothing",
    "{'name': 'NAME'}": "returned a dict",
    "BackendSpec('other', 1, TABLE, create)": "called 'other'",
    "BackendSpec('NAME', 99, TABLE, create)": "API version 99",
    "BackendSpec('NAME', '1', TABLE, create)": "api_version",
    "BackendSpec('NAME', (3, 2), TABLE, create)": "api_version",
    "BackendSpec('NAME', 1, None, create)": "capabilities is None",
    "BackendSpec('NAME', 1, TABLE, None)": "create is None",
    "BackendSpec('NAME', 1, TABLE, create, 3)": "availability is 3",
    "BackendSpec('NAME', 1, TABLE, create, checks=3)": "checks is 3",
    "BackendSpec('NAME', 1, TABLE, create, load=3)": "load is 3",
    "BackendSpec('NAME', 1, TABLE, create, runtime=3)": "runtime is 3",
    "BackendSpec('NAME', 1, TABLE, create, launch='mpiexec')": "launch is a str",
    "BackendSpec('NAME', 1, TABLE, create, launch=(1,))": "launch[0] is an int",
    "BackendSpec('NAME', 1, TABLE, create, variants={'a': 3})": "variants['a'] is an int",
    "BackendSpec('NAME', 1, TABLE, create, meets=3)": "meets is an int",
    "BackendSpec('NAME', 1, TABLE, create, core='99.0')": "belongs to rankwise 99.0",
    "BackendSpec('NAME', 1, Capabilities('gloo', TABLE.devices), create)": "those of 'gloo'",
    "BackendSpec('NAME', 1, Capabilities('NAME', {}), create)": "devices is empty",
    "BackendSpec('NAME', 1, Capabilities('NAME', {'CPU': TABLE.devices['cpu']}), create)": "'CPU'",
    **{
        f"BackendSpec('NAME', 1, Capabilities('NAME', TABLE.devices, {sizes}), create)": word
        for sizes, word in {"3": "sizes is an int", "range(3, 3)": "is range(3, 3)", "range(3)": "from 1 on"}.items()
    },
    "BackendSpec('NAME', 1, Capabilities('NAME', {'cpu': OPS}), create)": "devices['cpu'] is a dict",
    "BackendSpec('NAME', 1, Capabilities('NAME', {'cpu': Device({'send': True})}), create)": "ops['send'] is a bool",
    **{
        f"BackendSpec('NAME', 1, Capabilities('NAME', {{'cpu': Device(native('all_reduce', {limit}))}}), create)": word
        for limit, word in {
            "dtypes=['int8']": ".dtypes is a list",
            "dtypes={'flaot32'}": "did you mean 'float32'",
            "reduce_ops={'SUMM': {'int8'}}": "did you mean 'SUM'",
            "reduce_ops={'SUM': 'int8'}": ".reduce_ops['SUM'] is a str",
            "reason=3": ".reason is an int",
        }.items()
    },
}
NAMES = ("ACME", "tcp", "undefined", "a:b", "two words", "9lives", "dash-ed")


def plugins() -> dict[str, tuple[str, str, str]]:
    """Return each plugin: its name, its source, the word that must be said of it, and whether it is deadly."""
    found: dict[str, tuple[str, str, str]] = {}
    for fault, line in {**FAULTS, **DEADLY}.items():
        for place, source in PLACES.items():
            kind = "deadly" if fault in DEADLY else "noisy" if fault in ("prints",) else "fault"
            found[f"h{len(found)}"] = (
                HEAD.replace("FAULT", line).replace("VALUE", "True") + source,
                "",
                f"{kind} {place}",
            )
    for value, word in NONSENSE.items():
        source = f"@hookimpl\ndef rankwise_backend(): return {value}\n"
        found[f"h{len(found)}"] = (HEAD.replace("FAULT", "pass").replace("VALUE", "True") + source, word, "nonsense")
    for name in NAMES:
        found[name] = (HEAD.replace("FAULT", "pass").replace("VALUE", "True") + PLACES["import"], "name", "nonsense")
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    for number, (name, (source, _, _)) in enumerate(plugins().items()):
        info = folder / f"hostile_{number}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: hostile-{number}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[rankwise.backends]\n{name} = hostile_{number}\n")
        (folder / f"hostile_{number}.py").write_text(source.replace("NAME", name))
    garbage = folder / "garbage-1.0.dist-info"
    garbage.mkdir()
    (garbage / "METADATA").write_bytes(b"\xff\x00")
    (garbage / "entry_points.txt").write_bytes(b"[rankwise.backends]\n\xff\xfe = \x00\n")
    return folder


def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=environment(site), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_there_are_a_hundred() -> None:
    assert len(plugins()) >= 99  # and one whose metadata is garbage


def test_a_listing_tells_each_and_goes_on(site: Path) -> None:
    done = run(site, "-m", "rankwise", "backends", "--json", "--patience", "20")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = {backend["name"]: backend for backend in json.loads(done.stdout)["backends"]}
    if "rankwise-gloo-tcp" in str(found["gloo"].get("provider")):
        assert found["gloo"]["available"]
    for number, (name, (_, word, kind)) in enumerate(plugins().items()):
        said = found[name]
        assert said["provider"] == f"hostile-{number} 1.0"
        told = said.get("reason", "")
        if kind == "nonsense":
            assert not said["loads"]
            assert f"hostile-{number} 1.0" in told
            assert word in told, (name, told)
        elif kind.startswith("deadly"):
            assert not said["available"], (name, said)
            fault = TOLD[(number - len(FAULTS) * len(PLACES)) // len(PLACES)]
            assert told == f"backend {name!r} of hostile-{number} 1.0 cannot be used: {fault}"
        elif kind.startswith("noisy"):
            assert "garbage" in said["printed"]
        elif not kind.endswith("condition"):
            assert said["available"] or told
        assert len(told) < 2000
        assert told.isprintable()


def call(site: Path, function: Callable[..., object], *args: object) -> subprocess.CompletedProcess[str]:
    return run(site, *command(function, *args)[1:])


def use_another_backend() -> list[str]:
    dist.init_process_group("local", rank=0, world_size=1)
    with pytest.raises(dist.UnsupportedOperationError):
        dist.all_reduce(np.ones(3), dist.ReduceOp.BXOR)
    assert dist.supports("all_reduce", "cpu", "float32", "SUM")
    assert not dist.supports("all_reduce", "cpu", "float32", "BXOR", backend="local")
    dist.destroy_process_group()
    return [name for name in sys.modules if name.startswith("hostile_")]


def test_programs_that_ask_for_another_backend_see_nothing_of_them(site: Path) -> None:
    done = call(site, use_another_backend)
    assert (done.returncode, done.stderr) == (0, "")
    assert returned(done.stdout) == []


def ask_each(names: list[str]) -> str:
    for name in names:
        answer = dist.availability(name)
        assert answer or answer.reason, name
        problem = registry.problem(name)
        if problem is None:
            dist.supports("send", "cpu", backend=name)
            assert str(dist.capabilities(name))
            assert dist.capabilities(name).rows()
        else:
            assert "hostile-" in str(problem) or "name" in str(problem), problem
    return "all asked"


def test_a_program_that_asks_for_each_that_lets_it_live_hears_of_each(site: Path) -> None:
    names = [name for name, (_, _, kind) in plugins().items() if not kind.startswith(("deadly", "noisy"))]
    done = call(site, ask_each, [name for name in names if "stdout.close" not in plugins()[name][0]])
    assert (done.returncode, done.stderr) == (0, "")
    assert returned(done.stdout) == "all asked"


def test_the_doctor_tells_each_and_goes_on(site: Path) -> None:
    done = run(site, "-m", "rankwise", "doctor", "--quick", "--json", "--patience", "20")
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr, found["healthy"]) == (1, "", False)
    texts = "\n".join(finding["text"] for finding in found["findings"] if finding["section"] == "backends")
    assert all(f"\n{name}: " in f"\n{texts}" for name in plugins())
    assert any(finding["section"] == "shared memory" for finding in found["findings"])


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="needs a signal that is free")
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("kind", ["ImportError", "BaseException"])
@pytest.mark.parametrize("place", PLACES)
def test_what_a_handler_raises_is_no_fault_of_a_plugin(place: str, kind: str, times: int, tmp_path: Path) -> None:
    info = tmp_path / "signalled-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: signalled\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rankwise.backends]\nsignalled = signalled\n")
    source = HEAD.replace("FAULT", "sys.signals()").replace("VALUE", "True") + PLACES[place]
    (tmp_path / "signalled.py").write_text(source.replace("NAME", "signalled"))
    words = command(fresh.be_signalled, kind, place == "condition", times)[1:]
    done = warm.run(words, env=environment(tmp_path), timeout_s=PATIENCE_S)
    assert (done.stdout.splitlines()[:-1], done.stderr) == (["interrupted by a handler", "True True"], "")
