"""Shells complete what the commands really take."""

import shutil
import subprocess

import pytest

from rankwise.cli import COMMANDS, main
from rankwise_tools.grammar import grammar

PATIENCE_S = 30.0


@pytest.fixture
def script(capsys, tmp_path):
    def write(shell):
        assert main(["completion", shell]) == 0
        path = tmp_path / f"completion.{shell}"
        path.write_text(capsys.readouterr().out)
        return path

    return write


#: For each shell, a program that prints what it offers for the words given as arguments.
ASKING = {
    "bash": 'source {path}; COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _rankwise; printf "%s\\n" "${{COMPREPLY[@]}}"',
    "zsh": (
        "compadd() {{ shift; for word in $@; do [[ $word == ${{words[CURRENT]}}* ]] && print -r -- $word; done }}\n"
        "_files() {{ print -r -- FILES }}\nsource {path}; words=($@); words+=(); CURRENT=$#; "
        'words=("$@"); _rankwise; true'
    ),
    "fish": 'source {path}; complete -C "$argv"',
}


def offered(shell, path, *words):
    """Return what a shell offers for the last of some words."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} on this machine")
    program = ASKING[shell].format(path=path)
    arguments = {"bash": ["-c", program, "bash"], "zsh": ["-fc", program, "zsh"], "fish": ["-c", program]}[shell]
    done = subprocess.run([shell, *arguments, *words], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stderr == ""
    return [line.partition("\t")[0] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", ASKING)
def test_shells_offer_what_can_be_typed(shell, script):
    path = script(shell)
    assert offered(shell, path, "rankwise", "ru") == ["run"]
    assert sorted(offered(shell, path, "rankwise", "")) == sorted(COMMANDS)
    assert offered(shell, path, "rankwise", "run", "--max-r") == ["--max-restarts"]
    assert sorted(offered(shell, path, "rankwise", "bench", "--backend", "")) == ["gloo", "mpi", "nccl"]
    assert sorted(offered(shell, path, "rankwise", "completion", "")) == ["bash", "fish", "zsh"]


def test_the_grammar_has_every_option_of_every_command():
    found = {command.name: command for command in grammar()}
    assert list(found) == list(COMMANDS)
    options = {name: [word for option in command.options for word in option.names] for name, command in found.items()}
    assert {"--nproc-per-node", "-n", "--max-restarts", "--rdzv-endpoint"} <= set(options["run"])
    assert not any("_" in spelling for spellings in options.values() for spelling in spellings)
    assert all("--traceback" in spellings for spellings in options.values())
    assert "--local-addr" not in options["run"]  # which is answered, and not offered
