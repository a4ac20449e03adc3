"""`rankwise new-backend` writes a distribution whose backend passes the kit."""

from pathlib import Path

from tests.processes import environment

from rankwise.cli import main

ROOT = Path(__file__).parents[2]


def test_what_it_writes_passes_the_kit(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new-backend", "acme_net"]) == 0
    assert "rankwise conformance acme_net --fast" in capsys.readouterr().out
    folder = tmp_path / "rankwise-acme-net"
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    package = "src/rankwise_acme_net/__init__.py"
    assert written == {"pyproject.toml", "README.md", package, "tests/test_conformance.py"}
    assert 'acme_net = "rankwise_acme_net"' in (folder / "pyproject.toml").read_text()
    monkeypatch.setenv("PYTHONPATH", environment(folder / "src")["PYTHONPATH"])
    tests = "test_point_to_point or test_uneven or test_mismatch"
    said = run("--backend", "acme_net", "--plugin-module", "rankwise_acme_net", "--tb=short", "-k", tests)
    assert said.returncode == 0, said.stdout[-6000:] + said.stderr[-2000:]


def test_nothing_is_overwritten_and_a_name_is_a_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new-backend", "acme"]) == 0
    assert main(["new-backend", "acme"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["new-backend", "Acme Net"]) == 2


def test_the_template_is_the_example_that_is_proved():
    template = ROOT / "plugins/testing/src/rankwise_testing/template/backend.txt"
    assert template.read_text() == (ROOT / "tests/third_party/src/rankwise_mesh/__init__.py").read_text()
