# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl completion | man`: scripts for shells, and man pages, both from the commands' own help.

The scripts hold all words, so that completing starts no Python.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from datapath.disk import disk_errors, write_atomic


class Shell(enum.StrEnum):
    bash = "bash"
    zsh = "zsh"
    fish = "fish"


@dataclass(frozen=True)
class Command:
    """A command or a group of them: its words after `dpctl`, and what may follow."""

    words: tuple[str, ...]
    about: str
    help: str
    usage: str
    commands: Mapping[str, str]
    options: Mapping[str, tuple[str, str]]  # option -> (metavar, what it is for)

    @property
    def name(self) -> str:
        return " ".join(("dpctl", *self.words))


def register(app: typer.Typer) -> None:
    @app.command(short_help="Print the completion script of a shell.")
    def completion(shell: Shell) -> None:
        """Print a script that completes commands and options in this shell.

        \b
        dpctl completion bash > ~/.local/share/bash-completion/completions/dpctl
        dpctl completion zsh > ~/.zfunc/_dpctl       # with ~/.zfunc in fpath
        dpctl completion fish > ~/.config/fish/completions/dpctl.fish
        """
        make = {Shell.bash: _bash, Shell.zsh: _zsh, Shell.fish: _fish}
        print("\n".join(make[shell](list(commands(app)))))

    @app.command(short_help="Write man pages of all commands.")
    def man(
        out: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the pages.")],
    ) -> None:
        """Write a man page for each command, from its help.

        \b
        dpctl man ~/.local/share/man/man1 && man dpctl-run
        """
        with disk_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        for command in commands(app):
            file = out / f"{'-'.join(('dpctl', *command.words))}.1"
            write_atomic(file, _page(command).encode())
            print(file)


def commands(app: typer.Typer) -> Iterator[Command]:
    """The tree of commands, from the top."""
    top = typer.main.get_command(app)
    yield from _below((), top, top.make_context("dpctl", [], resilient_parsing=True))


def _below(words: tuple[str, ...], command: Any, context: Any) -> Iterator[Command]:
    inside = dict(sorted(getattr(command, "commands", {}).items()))
    options: dict[str, tuple[str, str]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if parameter.param_type_name != "option" or record is None:
            continue
        takes = "" if parameter.is_flag else (parameter.metavar or "VALUE")
        for name in (*parameter.opts, *parameter.secondary_opts):
            options[name] = (takes, str(record[1]))
    yield Command(
        words,
        command.get_short_help_str(200),
        str(command.help or ""),
        command.get_usage(context).removeprefix("Usage: "),
        {name: one.get_short_help_str(200) for name, one in inside.items()},
        options,
    )
    for name, one in inside.items():
        below = one.make_context(name, [], parent=context, resilient_parsing=True)
        yield from _below((*words, name), one, below)


def _bash(commands: list[Command]) -> list[str]:
    lines = ["# bash completion of dpctl; made by `dpctl completion bash`.", "_dpctl() {"]
    lines += _find_command("COMP_WORDS", "COMP_CWORD", first=1)
    lines += ["    local words=", '    case "$command" in']
    for command in commands:
        words = " ".join([*command.commands, *command.options])
        lines.append(f'    "{command.name}") words="{words}" ;;')
    lines += [
        "    esac",
        '    local word="${COMP_WORDS[COMP_CWORD]}"',
        '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
        '    [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))',
        "}",
        "complete -o filenames -F _dpctl dpctl ./dpctl",
    ]
    return [*_tree(commands), *lines]


def _tree(commands: list[Command]) -> list[str]:
    """A shell function that tells whether words make a group's command."""
    known = " | ".join(f'"{command.name}"' for command in commands)
    return ["_dpctl_known() {", f'    case "$1" in {known}) return 0 ;; esac', "    return 1", "}"]


def _find_command(words: str, end: str, first: int) -> list[str]:
    """Follows the words to the command that they name."""
    return [
        "    local command=dpctl i",
        f"    for ((i = {first}; i < {end}; i++)); do",
        f'        if _dpctl_known "$command ${{{words}[i]}}"; then',
        f'            command="$command ${{{words}[i]}}"',
        "        fi",
        "    done",
    ]


def _zsh(commands: list[Command]) -> list[str]:
    lines = ["#compdef dpctl", "# made by `dpctl completion zsh`."]
    lines += [*_tree(commands), "_dpctl() {", *_find_command("words", "CURRENT", first=2)]
    lines += ["    local -a found", '    case "$command" in']
    for command in commands:
        entries = [*command.commands.items()]
        entries += [(name, about) for name, (_, about) in command.options.items()]
        shown = " ".join(_zsh_word(f"{name}:{about}") for name, about in entries)
        lines.append(f'    "{command.name}") found=({shown}) ;;')
    lines += ["    esac", "    _describe -t commands dpctl found", "    _files", "}"]
    return [
        *lines,
        'if [ "$funcstack[1]" = _dpctl ]; then _dpctl "$@"; else compdef _dpctl dpctl; fi',
    ]


def _zsh_word(text: str) -> str:
    name, _, about = text.partition(":")
    return "'" + f"{name}:{about}".replace("'", "").replace("\n", " ") + "'"


def _fish(commands: list[Command]) -> list[str]:
    lines = ["# fish completion of dpctl; made by `dpctl completion fish`."]
    lines += [
        "function __dpctl_at",
        "    set -l at dpctl",
        "    for word in (commandline -opc)[2..]",
    ]
    lines += ['        switch "$at $word"']
    lines += [f'            case "{c.name}"; set at "{c.name}"' for c in commands if c.words]
    lines += ["        end", "    end", '    test "$at" = "$argv"', "end"]
    for command in commands:
        here = f"-n '__dpctl_at {command.name}'"
        for name, about in command.commands.items():
            lines.append(f"complete -c dpctl {here} -f -a {name} -d {_fish_word(about)}")
        for name, (takes, about) in command.options.items():
            kind = "-l" if name.startswith("--") else "-s"
            needs = " -r" if takes else ""
            told = _fish_word(about)
            lines.append(f"complete -c dpctl {here} {kind} {name.lstrip('-')}{needs} -d {told}")
    return lines


def _fish_word(text: str) -> str:
    return "'" + text.replace("\\", "").replace("'", "").replace("\n", " ") + "'"


def _page(command: Command) -> str:
    """A man page: name, synopsis, description, options, commands."""
    title = "-".join(("dpctl", *command.words)).upper()
    lines = [f'.TH "{title}" 1 "" "datapath"', ".SH NAME"]
    lines += [f"{_roff('-'.join(('dpctl', *command.words)))} \\- {_roff(command.about)}"]
    lines += [".SH SYNOPSIS", _roff(command.usage), ".SH DESCRIPTION"]
    for block in command.help.split("\n\n"):
        if block.startswith("\b"):
            lines += [".PP", ".nf", *map(_roff, block.strip("\b\n").splitlines()), ".fi"]
        else:
            lines += [".PP", _roff(" ".join(block.split()))]
    if command.options:
        lines.append(".SH OPTIONS")
        for name, (takes, about) in command.options.items():
            lines += [".TP", f".B {_roff(' '.join(filter(None, (name, takes))))}", _roff(about)]
    if command.commands:
        lines.append(".SH COMMANDS")
        for name, about in command.commands.items():
            lines += [
                ".TP",
                f".BR {_roff('-'.join(('dpctl', *command.words, name)))} (1)",
                _roff(about),
            ]
    return "\n".join(lines) + "\n"


def _roff(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
