"""The command `rankwise`, as a user meets it."""

from __future__ import annotations

import importlib.util
import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from tests import fresh
from tests.by_reference import call
from tests.command_line import SOURCE, Shell, run_here

import rankwise
from rankwise.backends.registry import registry
from rankwise.cli import COMMANDS
from rankwise_launch import demo_program

TIMEOUT_S = 60
ROOT = SOURCE.parent


class Installing(Shell):
    """One whose folder is also a place to install distributions into."""

    def install(
        self, distribution: str, name: str, module: str, source: str | None = None, group: str = "rankwise.backends"
    ) -> None:
        """Write what pip would leave of a distribution with one plugin."""
        info = self.folder / f"{distribution.replace('-', '_')}-1.2.3.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2.3\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}\n")
        if source is not None:
            (self.folder / f"{module}.py").write_text(source)

    def asked(self, *arguments: str) -> Any:
        """Return what a command tells as JSON."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def shell(tmp_path: Path) -> Installing:
    return Installing(tmp_path, TIMEOUT_S)


@pytest.fixture
def good(shell: Installing) -> Installing:
    """A shell in which a backend is installed that cannot run here."""
    shell.install("good-dist", "good", "good_plugin", GOOD)
    return shell


@pytest.fixture
def with_gloo(shell: Installing) -> Installing:
    """A shell in which the backend gloo is installed, if need be from its source."""
    if "gloo" not in registry.names():
        shell.path.append(str(ROOT / "plugins/gloo_tcp/src"))
        shell.install("rankwise-gloo-tcp", "gloo", "rankwise_gloo_tcp.plugin")
    return shell


GOOD = """
from rankwise import API_VERSION, Availability, BackendSpec
from rankwise.backends import Capabilities, Device, conditional, derived, native
from rankwise.backends.hookspecs import hookimpl

DEVICE = Device(
    {**native("send", "recv"), **derived("barrier"),
     **conditional("all_reduce", reason="the moon must be full", holds=lambda: False)},
    native("tags"),
)

@hookimpl
def rankwise_backend():
    return BackendSpec("good", 1, Capabilities("good", {"cpu": DEVICE, "cuda": DEVICE}), create=print,
                       availability=lambda: Availability(False, "no moon here", "wait for the night"))
"""


def test_the_command_alone_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    alone = run_here(capsys)
    assert alone == run_here(capsys, "--help")
    assert "rankwise demo -n 4" in alone[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, err = run_here(capsys, command, "--help")
    assert (code, err) == (0, "")
    assert f"\n  rankwise {command}" in out
    assert re.search(r"\nexamples?:\n", out)


def test_the_overview_lists_all_commands_and_imports_none(shell: Installing) -> None:
    environment = {**shell.environment, "PYTHONPATH": str(SOURCE)}
    code, overview, loaded = call(fresh.show_help, timeout_s=TIMEOUT_S, env=environment)
    assert code == 0
    assert all(f"    {name}" in overview for name in COMMANDS)
    assert not {"rich", "zmq", "pluggy", "asyncio", "multiprocessing.connection", "importlib.metadata"} & loaded
    assert not [name for name in loaded if name.endswith("_command")]


COMMAND = """
import argparse
DESCRIPTION, EXAMPLES = "Greet.", "example:\\n  rankwise hello Rank"
def add_arguments(parser):
    parser.add_argument("name")
def run(options):
    print("hello", options.name)
    return 7
"""


def test_a_distribution_brings_a_command(shell: Installing) -> None:
    shell.install("rankwise-hello", "hello", "hello_command", COMMAND, "rankwise.commands")
    done = shell.run("hello", "Rank")
    assert (done.returncode, done.stdout, done.stderr) == (7, "hello Rank\n", "")
    assert re.search(r"\n    hello +\(brought by hello_command\)\n", shell.run("--help").stdout)
    assert "did you mean hello?" in shell.run("helo").stderr


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import a_library_that_is_not_there", "ModuleNotFoundError: No module named 'a_library_that_is_not_there'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def run(options): return 0", "its module broken_command has no DESCRIPTION and no EXAMPLES"),
    ],
)
def test_a_broken_command_is_named_and_hurts_no_other(shell: Installing, source: str, said: str) -> None:
    shell.install("rankwise-broken", "broken", "broken_command", source, "rankwise.commands")
    done = shell.run("broken")
    assert (done.returncode, done.stdout) == (1, "")
    told = " ".join(done.stderr.split())
    assert f"the command 'broken' of rankwise-broken 1.2.3 cannot be loaded: {said}" in told or said in told
    assert shell.run("secret", "--help").returncode == 0
    listed = shell.run("--help")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "broken" in listed.stdout
    assert "Traceback" in shell.run("broken", "--traceback").stderr


def test_a_command_of_two_distributions_is_run_by_neither(shell: Installing) -> None:
    shell.install("rankwise-a", "hello", "hello_a", COMMAND, "rankwise.commands")
    shell.install("rankwise-b", "hello", "hello_b", COMMAND, "rankwise.commands")
    done = shell.run("hello", "Rank")
    assert done.returncode == 1
    assert "'hello' is claimed by rankwise-" in done.stderr
    assert "uninstall all but one" in " ".join(done.stderr.split())


def test_no_distribution_takes_a_command_from_the_core(shell: Installing) -> None:
    shell.install("rankwise-thief", "secret", "thief", COMMAND, "rankwise.commands")
    assert "hello" not in shell.run("secret", "new", "job.secret").stdout


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here(capsys, "--version") == (0, f"rankwise {rankwise.__version__}\n", "")


def test_an_error_is_one_paragraph_unless_its_traceback_is_asked_for(shell: Installing) -> None:
    plain = shell.run("conformance", "bogus")
    assert plain.returncode == 69
    assert plain.stderr.startswith("rankwise conformance: no backend 'bogus' is installed")
    assert "Traceback" not in plain.stderr
    assert "\n\n" not in plain.stderr
    for words, env in ((["--traceback", "bogus"], {}), (["bogus"], {"RANKWISE_DEBUG": "DETAIL"})):
        full = shell.run("conformance", *words, env=env)
        assert full.returncode == 1
        assert "Traceback (most recent call last)" in full.stderr


def test_a_new_secret_is_readable_by_its_owner_only_and_never_overwritten(shell: Installing) -> None:
    result = shell.run("secret", "new", "job.secret")
    path = shell.folder / "job.secret"
    before = path.read_text()
    assert result.returncode == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(bytes.fromhex(before.strip())) == 32
    assert before.strip() not in result.stdout + result.stderr
    again = shell.run("secret", "new", "job.secret")
    assert again.returncode == 1
    assert "job.secret is there already" in again.stderr
    assert path.read_text() == before


def test_backends_tells_ready_from_broken_from_missing(good: Installing) -> None:
    good.install("broken-dist", "broken", "broken_plugin", "import no_such_library_at_all")
    found = good.asked("backends")
    backends = {backend["name"]: backend for backend in found["backends"]}
    place = {"name": "good", "provider": "good-dist 1.2.3", "devices": ["cpu", "cuda"]}
    state = {"installed": True, "loads": True, "available": False}
    assert backends["good"] == {**place, **state, "reason": "no moon here", "remedy": "wait for the night"}
    assert backends["broken"]["loads"] is False
    assert "broken-dist 1.2.3" in backends["broken"]["reason"]
    assert "No module named 'no_such_library_at_all'" in backends["broken"]["reason"]
    assert {"gloo", "mpi", "nccl"} <= set(backends)
    cell = found["capabilities"]["good"]["cpu"]["ops"]["all_reduce"]
    assert (cell["support"], cell["usable"], cell["reason"]) == ("conditional", False, "the moon must be full")


def test_the_table_in_the_terminal_shows_states_and_reasons(good: Installing) -> None:
    shown = good.run("backends").stdout
    assert re.search(r"good +cpu, cuda +good-dist 1.2.3 +cannot run\n", shown)
    assert "\n  good: no moon here; wait for the night\n" in shown
    note = re.search(r"^\[\d+\](?= the moon must be full$)", shown, re.MULTILINE)
    assert note is not None
    assert re.search(rf"^all_reduce .*conditional: no here {re.escape(note[0])}", shown, re.MULTILINE)
    assert "\x1b" not in shown
    if "nccl" not in registry.names():
        assert re.search(r"nccl +- +- +not installed\n(.*\n)*  nccl: pip install rankwise-nccl\n", shown)


def test_one_device_and_one_operation_can_be_asked_for(good: Installing) -> None:
    shown = good.run("backends", "--device", "cuda", "--op", "all_reduce").stdout
    assert "good cuda: conditional, no on this machine (the moon must be full)" in shown
    assert "good cpu" not in shown
    assert re.search(r"BAND, BOR, BXOR: .*bool", shown)
    heading = good.run("backends", "--device", "cuda", "--markdown").stdout.splitlines()[0]
    assert heading.startswith("| operation | ")
    assert "good cuda" in heading
    assert "cpu" not in heading


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--device", "tpu"], "no installed backend knows a device 'tpu'"),
        (["--device", "cpuu"], "did you mean 'cpu'?"),
        (["--op", "all_redcue"], "did you mean 'all_reduce'?"),
        (["--feature", "tag"], "did you mean 'tags'?"),
        (["--dtype", "flaot32"], "did you mean 'float32'?"),
        (["--diff", "good", "god"], "the table has no backend 'god'; did you mean 'good'?"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_cannot_be_asked_for_is_told_with_the_nearest_word(good: Installing, wrong: list[str], said: str) -> None:
    result = good.run("backends", *wrong)
    assert (result.returncode, result.stdout) == (2, "")
    assert said in result.stderr


#: A backend on the processor, with what its operations and checks are.
BACKEND = """
import os
from rankwise.backends import BackendSpec, Capabilities, Check, Device, derived, hookimpl, native

def checks():
    CHECKS

@hookimpl
def rankwise_backend():
    table = Capabilities("NAME", {"cpu": Device({OPS}, native("tags"))})
    return BackendSpec("NAME", 1, table, lambda context: None, checks=checks)
"""


def backend(name: str, ops: str, checks: str = "return []") -> str:
    return BACKEND.replace("NAME", name).replace("OPS", ops).replace("CHECKS", checks)


@pytest.fixture
def two(shell: Installing) -> Installing:
    """A shell with two backends that differ in `gather`, which one lacks, and in the dtypes of `send`."""
    more = '**native("send"), **derived("gather", "broadcast")'
    less = '**native("send", dtypes=frozenset({"int8"})), **derived("broadcast")'
    for name, ops in (("more", more), ("less", less)):
        shell.install(f"{name}-dist", name, f"{name}_plugin", backend(name, ops))
    return shell


def test_a_dtype_leaves_what_takes_it_and_the_backends_that_do(two: Installing) -> None:
    found = two.asked("backends", "--dtype", "S5", "--device", "cpu")["capabilities"]
    of_gloo = set(found["gloo"]["cpu"]["ops"]) if "gloo" in found else set()
    assert set(found["more"]["cpu"]["ops"]) == {"send", "broadcast", "gather"} | of_gloo
    assert found["more"]["cpu"]["features"] == {}
    only = two.asked("backends", "--dtype", "S5", "--op", "send")["capabilities"]
    assert ("more" in only, "less" in only) == (True, False)
    nobody = two.run("backends", "--dtype", "S5", "--op", "all_reduce")
    assert (nobody.returncode, nobody.stdout[-28:]) == (0, "\nNo backend does that here.\n")


def test_operations_and_features_can_be_asked_for_together(two: Installing) -> None:
    shown = two.run("backends", "--op", "gather", "--feature", "tags").stdout
    assert re.search(r"^gather\n(  .*\n)*  less cpu: no\n(  .*\n)*  more cpu: derived\n", shown, re.MULTILINE)
    assert re.search(r"^tags: .*\n(  .*\n)*  more cpu: native\n", shown, re.MULTILINE)
    assert not re.search(r"^broadcast", shown, re.MULTILINE)


def test_the_difference_of_two_backends_can_be_asked_for(two: Installing) -> None:
    found = two.asked("backends", "--diff", "more", "less")["capabilities"]
    assert set(found) == {"more", "less"}
    assert set(found["more"]["cpu"]["ops"]) == {"send", "gather"}
    assert found["more"]["cpu"]["features"] == {}
    assert found["less"]["cpu"]["ops"]["gather"]["usable"] is False
    markdown = two.run("backends", "--markdown", "--diff", "more", "less").stdout.splitlines()
    assert markdown[0] == "| operation | more cpu | less cpu |"
    assert [line.split()[1] for line in markdown[2:] if line.startswith("| ")] == ["send", "gather"]
    assert two.run("backends", "--diff", "more", "more").stdout.endswith("\nThey do not differ.\n")
    of_one = two.asked("backends", "--diff", "more", "less", "--op", "broadcast")
    assert of_one["capabilities"]["more"]["cpu"]["ops"] == {}


def test_the_doctor_finds_a_working_machine_healthy(with_gloo: Installing) -> None:
    result = with_gloo.run("doctor")
    assert result.returncode == 0, result.stdout
    assert re.search(r"ok  gloo: two processes all_reduce 1 MiB on this machine: right, in \d+ us", result.stdout)
    assert re.search(r"ok  gloo: rankwise-gloo-tcp .* ready for cpu", result.stdout)
    assert "this machine's address is" in result.stdout or "only this machine can be reached" in result.stdout
    assert "process_vm_readv" in result.stdout
    assert result.stdout.endswith("\nhealthy\n")


def test_the_doctor_tells_what_backends_look_at_and_survives_it(shell: Installing) -> None:
    lines = {
        "looks": "yield Check(True, 'a cable'); yield Check(None, 'a long one'); yield Check(False, 'cut', 'mend it')",
        "raises": "raise SystemExit(3)",
        "nonsense": "return ['fine']",
        "nothing": "return None",
        "ends": "os._exit(3)",
    }
    for name, line in lines.items():
        shell.install(f"{name}-dist", name, f"{name}_plugin", backend(name, '**native("send", "recv")', line))
    result = shell.run("doctor", "--quick", "--json")
    findings = [f for f in json.loads(result.stdout)["findings"] if f["section"] == "backends"]
    told = {(f["level"], f["text"], f["remedy"]) for f in findings}
    assert {("good", "looks: a cable", ""), ("note", "looks: a long one", ""), ("bad", "looks: cut", "mend it")} <= told
    bad = {text.partition(":")[0]: text for level, text, _ in told if level == "bad"}
    assert "its checks failed: it would end the process (SystemExit: 3)" in bad["raises"]
    assert bad["nonsense"] == "nonsense: checks()[0] is a str, but must be a Check"
    assert "its checks failed: TypeError" in bad["nothing"]
    assert "ends-dist 1.2.3 cannot be used: it has ended the process that asked it" in bad["ends"]
    # A list of them has none of them look at anything.
    listed = {b["name"]: b for b in shell.asked("backends")["backends"]}
    assert all(listed[name]["available"] for name in lines)


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("import no_such_library_at_all", "No module named 'no_such_library_at_all'"),
        (GOOD.replace('"good", 1', '"good", 99'), "written for API version 99"),
        ("", "rankwise_backend()"),
    ],
    ids=["broken", "other version", "empty"],
)
def test_the_doctor_names_a_broken_plugin_and_the_cause(shell: Installing, source: str, cause: str) -> None:
    shell.install("good-dist", "good", "good_plugin", source)
    result = shell.run("doctor", "--quick", "--json")
    found = json.loads(result.stdout)
    assert result.returncode == 1
    assert found["healthy"] is False
    [finding] = [f for f in found["findings"] if f["text"].startswith("good: ")]
    assert finding["level"] == "bad"
    assert "good-dist 1.2.3" in finding["text"]
    assert cause in finding["text"]


def test_the_doctor_names_both_claimants_of_a_name(good: Installing) -> None:
    good.install("other-dist", "good", "good_plugin")
    result = good.run("doctor", "--quick")
    assert result.returncode == 1
    assert all(words in result.stdout for words in ("claimed by", "good-dist 1.2.3", "other-dist 1.2.3"))


def test_a_backend_that_does_not_work_makes_the_machine_unhealthy(shell: Installing) -> None:
    source = GOOD.split("availability=")[0].rstrip().rstrip(",") + ")\n"
    shell.install("good-dist", "good", "good_plugin", source)
    result = shell.run("doctor")
    assert result.returncode == 1
    assert "XX  good: two processes send and receive 1 MiB on this machine: exit code 1" in result.stdout


def test_a_secret_that_others_can_read_is_reported(with_gloo: Installing) -> None:
    with_gloo.run("secret", "new", "s")
    (with_gloo.folder / "s").chmod(0o644)
    result = with_gloo.run("doctor", "--quick", env={"RANKWISE_SECRET_FILE": "s"})
    assert result.returncode == 1
    assert "the job secret cannot be used" in result.stdout


#: For pytest: read only few files of the kit.
OTHERS = "--ignore-glob=*/test_[!p]*"


def test_the_kit_is_run_and_declared_is_shown_beside_measured(shell: Installing) -> None:
    result = shell.run("conformance", "local", "--report", "found.json", "--", "-k", "a_message_of_nothing", OTHERS)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 passed" in result.stdout
    assert re.search(r"\n +declared +measured\n", result.stdout)
    assert re.search(r"\nbarrier +derived +not measured\n", result.stdout)
    assert "\nwhat was run works; declared, but not run: operations send, recv, broadcast" in result.stdout
    assert json.loads((shell.folder / "found.json").read_text())["device"] == "cpu"


def test_the_exit_code_of_the_kit_is_passed_on(shell: Installing) -> None:
    nothing_selected = 5
    assert shell.run("conformance", "local", "--", "-k", "no_such_test", OTHERS).returncode == nothing_selected


def test_the_demo_trains_and_says_what_was_exchanged(with_gloo: Installing) -> None:
    result = with_gloo.run("demo", "-n", "2", "--backend", "gloo", "--steps", "60")
    assert result.returncode == 0, result.stderr
    losses = {
        int(step): (float(first), float(second))
        for step, first, second in re.findall(r"\[0\]: (\d+) +(\d\.\d+) +(\d\.\d+) +[\d.]+ +\d+ MB/s", result.stdout)
    }
    assert sorted(losses) == [1, *range(7, 60, 7), 60]
    assert max(losses[60]) < min(losses[1]) / 2
    assert "parameters of all ranks are identical, bit for bit" in result.stdout
    assert "60 times all_reduce of 154 kB of gradients" in result.stdout
    assert result.stdout.startswith("$ rankwise run -n 2 -m rankwise_launch.demo_program --backend gloo\n")


def test_the_example_is_the_program_of_the_demo() -> None:
    program = Path(demo_program.__file__)
    assert (ROOT / "examples/data_parallel.py").read_text() == program.read_text()


def test_bench_measures_every_operation(with_gloo: Installing) -> None:
    plan = ["--backend", "gloo", "--sizes", "1KiB:16KiB:4", "--iterations", "2", "--warmup", "1"]
    result = with_gloo.run("bench", "--ops", "all", *plan, "--json")
    assert result.returncode == 0, result.stderr
    results = json.loads(result.stdout)["results"]
    by_op = {op: [r for r in results if r["op"] == op] for op in {r["op"] for r in results}}
    assert len(by_op) == 10
    assert [r["nbytes"] for r in by_op["all_reduce"]] == [1024, 4096, 16384]
    assert all(r["latency_s"] >= r["fastest_s"] > 0 for r in results if r["op"] != "send_recv")
    assert all(r["algbw_bytes_per_s"] == pytest.approx(r["nbytes"] / r["latency_s"]) for r in results)
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("library", "asked", "sentence"),
    [
        ("torch", ["--compare", "gloo-torch"], "comparing with gloo-torch needs torch: pip install torch"),
        ("mpi4py", ["--compare", "mpi4py"], "comparing with mpi4py needs mpi4py: pip install mpi4py"),
    ],
)
def test_bench_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, library: str, asked: list[str], sentence: str
) -> None:
    import rankwise_local  # noqa: F401  # brings the backend `local`

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == library else find(name))
    ended, _, err = run_here(capsys, "bench", "--backend", "local", *asked)
    assert ended == 1
    assert sentence in err.replace("\n", " ")


def test_the_help_groups_commands_that_are_not_there_by_what_installs_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rankwise_launch.commands.installed", lambda: {"secret": "make a job secret"})
    _, told, _ = run_here(capsys, "--help")
    assert re.search(r"^pip install rankwise-testing: adds conformance, new-backend$", told, re.MULTILINE)
    assert re.search(r"^pip install rankwise-tools: adds bench, explain, top,", told, re.MULTILINE)
    assert told.count("pip install rankwise-tools") == 1
