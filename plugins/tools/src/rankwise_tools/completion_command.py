"""`rankwise completion`: what a shell needs to complete command lines of rankwise."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = """\
Print what a shell needs to complete commands, options and their values. It is made from the commands themselves, and
is to be printed again after an upgrade."""

EXAMPLES = """\
examples:
  rankwise completion bash > ~/.local/share/bash-completion/completions/rankwise
  rankwise completion zsh > ~/.zfunc/_rankwise          # with fpath+=~/.zfunc before compinit
  rankwise completion fish > ~/.config/fish/completions/rankwise.fish"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell]())
    return 0


_BASH = """\
# completion of rankwise for bash; made by: rankwise completion bash
_rankwise() {{
    local word previous command
    word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command=
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${{COMP_WORDS[i]}} != -* ]]; then command=${{COMP_WORDS[i]}}; break; fi
    done
    local words=
    case "$command $previous" in
{values}
    *)
        case "$command:$word" in
        :*) words={commands} ;;
{options}
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o bashdefault -o default -F _rankwise rankwise"""

_ZSH = """\
#compdef rankwise
# completion of rankwise for zsh; made by: rankwise completion zsh
_rankwise() {{
    local word=$words[CURRENT] previous=$words[CURRENT-1] command=
    local i; for ((i = 2; i < CURRENT; i++)); do
        if [[ $words[i] != -* ]]; then command=$words[i]; break; fi
    done
    local -a found
    case "$command $previous" in
{values}
    *)
        case "$command:$word" in
        :*) found=({commands}) ;;
{options}
        esac ;;
    esac
    if (( $#found )); then compadd -- $found; else _files; fi
}}
if [[ ${{funcstack[1]}} == _rankwise ]]; then _rankwise "$@"; elif (( $+functions[compdef] )); then
    compdef _rankwise rankwise
fi"""


def _bash() -> str:
    return _cases(_BASH, "words={}")


def _zsh() -> str:
    return _cases(_ZSH, "found=({})", quoted=False)


def _cases(template: str, give: str, quoted: bool = True) -> str:
    from rankwise_tools.grammar import grammar

    def words(several: Sequence[str]) -> str:
        return shlex.quote(" ".join(several)) if quoted else " ".join(map(shlex.quote, several))

    commands = grammar()
    values, options = [], []
    for command in commands:
        for option in command.options:
            if option.values:
                patterns = "|".join(f'"{command.name} {name}"' for name in option.names)
                values.append(f"    {patterns}) {give.format(words(option.values))} ;;")
        names = [name for option in command.options for name in option.names]
        options.append(f"        {command.name}:-*) {give.format(words(names))} ;;")
        if command.words:
            options.append(f"        {command.name}:*) {give.format(words(command.words))} ;;")
    return template.format(
        values="\n".join(values), options="\n".join(options), commands=words([command.name for command in commands])
    )


def _fish() -> str:
    from rankwise_tools.grammar import grammar

    lines = ["# completion of rankwise for fish; made by: rankwise completion fish"]
    commands = grammar()
    for command in commands:
        lines.append(f"complete -c rankwise -n __fish_use_subcommand -f -a {command.name} -d {_quoted(command.help)}")
        seen = f"complete -c rankwise -n '__fish_seen_subcommand_from {command.name}'"
        for option in command.options:
            spelled = " ".join(f"-l {name[2:]}" if name[:2] == "--" else f"-s {name[1:]}" for name in option.names)
            value = f" -x -a {_quoted(' '.join(option.values))}" if option.values else " -r" * option.takes_value
            lines.append(f"{seen} {spelled} -d {_quoted(option.help)}{value}")
        if command.words:
            lines.append(f"{seen} -f -a {_quoted(' '.join(command.words))}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
