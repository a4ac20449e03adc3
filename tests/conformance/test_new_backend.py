"""`rankwise new-backend` writes a distribution whose backend passes the kit."""

import re
import subprocess
import sys
from pathlib import Path

from tests.processes import environment

from rankwise.cli import main

ROOT = Path(__file__).parents[2]
WIRE = ROOT / "examples/wire/src/rankwise_wire"
TIMEOUT_S = 60


def test_what_it_writes_passes_the_kit(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new-backend", "acme_net"]) == 0
    said = capsys.readouterr().out
    assert said.index("rankwise run -n 2 rankwise-acme-net/program.py") < said.index("conformance acme_net --fast")
    folder = tmp_path / "rankwise-acme-net"
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    package = "src/rankwise_acme_net/__init__.py"
    assert written == {"pyproject.toml", "README.md", "program.py", package, "tests/test_conformance.py"}
    assert 'acme_net = "rankwise_acme_net"' in (folder / "pyproject.toml").read_text()
    info = tmp_path / "rankwise_acme_net-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rankwise-acme-net\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[rankwise.backends]\nacme_net = rankwise_acme_net\n")
    monkeypatch.setenv("PYTHONPATH", environment(tmp_path, folder / "src")["PYTHONPATH"])
    ranks = subprocess.run(
        [sys.executable, "-m", "rankwise", "run", "-n", "2", str(folder / "program.py")],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert sorted(ranks.stdout.splitlines()) == ["[0]: [3. 3. 3.]", "[1]: [3. 3. 3.]"], ranks.stderr
    tests = "test_point_to_point or test_uneven or test_mismatch"
    said = run("--backend", "acme_net", "--plugin-module", "rankwise_acme_net", "--tb=short", "-k", tests)
    assert said.returncode == 0, said.stdout[-6000:] + said.stderr[-2000:]


def test_a_full_one_passes_too_and_has_a_command_and_checks(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new-backend", "acme_net", "--full"]) == 0
    folder = tmp_path / "rankwise-acme-net"
    package = folder / "src" / "rankwise_acme_net"
    assert {path.stem for path in package.glob("*.py")} == {path.stem for path in WIRE.glob("*.py")}
    for path in filter(Path.is_file, folder.rglob("*")):
        assert not re.search(r"\bwire\b|rankwise_wire|WIRE|Wire|mesh|NAME", path.read_text()), path
    assert 'acme_net = "rankwise_acme_net.command"' in (folder / "pyproject.toml").read_text()
    assert "pg_options=Options(" in (folder / "README.md").read_text()
    monkeypatch.setenv("PYTHONPATH", environment(folder / "src")["PYTHONPATH"])
    tests = "test_point_to_point or test_joining or test_death or test_message_dtypes or any_count and reduce"
    said = run("--backend", "acme_net", "--plugin-module", "rankwise_acme_net", "--tb=short", "-k", tests)
    assert said.returncode == 0, said.stdout[-6000:] + said.stderr[-2000:]


def test_nothing_is_overwritten_and_a_name_is_a_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new-backend", "acme"]) == 0
    assert main(["new-backend", "acme"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["new-backend", "Acme Net"]) == 2


def test_the_templates_are_the_examples_that_are_proved():
    template = ROOT / "plugins/testing/src/rankwise_testing/template/backend.txt"
    for path in WIRE.glob("*.py"):
        assert template.with_name("full").joinpath(f"{path.stem}.txt").read_text() == path.read_text()
    assert template.read_text() == (ROOT / "tests/third_party/src/rankwise_mesh/__init__.py").read_text()
