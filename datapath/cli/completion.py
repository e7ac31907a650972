# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl completion | man`: scripts for shells, and man pages, both from the commands' own help.

The scripts hold all words, so that completing starts no Python.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
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
class Option:
    """An option with all its names; takes: "" when it has no value; values: "" when any will do."""

    names: tuple[str, ...]
    takes: str
    about: str
    values: str

    @property
    def written(self) -> str:
        """`-o, --out DIR`"""
        return f"{', '.join(sorted(self.names, key=len))} {self.takes}".rstrip()


@dataclass(frozen=True)
class Command:
    """A command or a group of them: its words after `dpctl`, and what may follow.

    arguments: each with what it is about.  values: known values of them, separated by blanks.
    """

    words: tuple[str, ...]
    about: str
    help: str
    usage: str
    commands: Mapping[str, str]
    arguments: Sequence[tuple[str, str]]
    options: Sequence[Option]
    values: str

    @property
    def name(self) -> str:
        return " ".join(("dpctl", *self.words))


def register(app: typer.Typer) -> None:
    @app.command(short_help="Print the completion script of a shell.")
    def completion(
        shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
    ) -> None:
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
        with disk_errors(out, rather="name another folder"):
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
    arguments, options, values = [], [], []
    for parameter in command.get_params(context):
        known = [item.value for item in parameter.shell_complete(context, "")]
        record = parameter.get_help_record(context)
        if parameter.param_type_name != "option":
            values += known
            arguments += [(str(name), str(about)) for name, about in [record or ("", "")] if about]
        elif record is not None:
            takes = "" if parameter.is_flag else parameter.display_type_rich(context)
            names = (*parameter.opts, *parameter.secondary_opts)
            options.append(Option(names, takes, str(record[1]), " ".join(known)))
    yield Command(
        words,
        command.get_short_help_str(200),
        str(command.help or ""),
        command.get_usage(context).removeprefix("Usage: "),
        {name: one.get_short_help_str(200) for name, one in inside.items()},
        arguments,
        options,
        " ".join(values),
    )
    for name, one in inside.items():
        below = one.make_context(name, [], parent=context, resilient_parsing=True)
        yield from _below((*words, name), one, below)


def _bash(commands: list[Command]) -> list[str]:
    lines = ["# bash completion of dpctl; made by `dpctl completion bash`.", "_dpctl() {"]
    lines += _find_command("COMP_WORDS", "COMP_CWORD", first=1)
    lines += [
        '    local word="${COMP_WORDS[COMP_CWORD]}" words= options= values=',
        '    case "$command" in',
    ]
    for command in commands:
        words = " ".join(filter(None, [*command.commands, command.values]))
        options = " ".join(name for option in command.options for name in option.names)
        lines.append(f'    "{command.name}") words="{words}" options="{options}" ;;')
    lines += ["    esac", *_values(commands, "${COMP_WORDS[COMP_CWORD-1]}")]
    lines += [
        '    case "$values$word" in -*) words=$options ;; esac',
        '    [ -z "$values" ] || words=$values',
        '    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")',
        '    [ ${#COMPREPLY[@]} -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- "$word")',
        "}",
        "complete -o filenames -F _dpctl dpctl ./dpctl",
    ]
    return [*_tree(commands), *lines]


def _values(commands: list[Command], before: str) -> list[str]:
    """Sets `values`, if the word before is an option whose values are known, or any file (" ")."""
    lines = [f'    case "$command {before}" in']
    for command in commands:
        for option in command.options:
            if option.takes:
                at = " | ".join(f'"{command.name} {name}"' for name in option.names)
                lines.append(f'    {at}) values="{option.values or " "}" ;;')
    return [*lines, "    esac"]


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
    lines += ["    local values= known=", "    local -a found options", '    case "$command" in']
    for command in commands:
        shown = " ".join(_zsh_word(*entry) for entry in command.commands.items())
        options = " ".join(
            _zsh_word(name, option.about) for option in command.options for name in option.names
        )
        about = f'found=({shown}) options=({options}) known="{command.values}"'
        lines.append(f'    "{command.name}") {about} ;;')
    lines += ["    esac", *_values(commands, "${words[CURRENT-1]}")]
    lines += [
        '    if [[ -n "$values" ]]; then',
        "        compadd -- ${=values}",
        '        [[ "$values" != " " ]] || _files',
        '    elif [[ "${words[CURRENT]}" = -* ]]; then',
        "        _describe -o option options",
        "    else",
        "        _describe -t commands command found",
        "        compadd -- ${=known}",
        "        [[ ${#found} -gt 0 ]] || _files",
        "    fi",
        "}",
    ]
    return [
        *lines,
        'if [ "$funcstack[1]" = _dpctl ]; then _dpctl "$@"; else compdef _dpctl dpctl; fi',
    ]


def _zsh_word(name: str, about: str) -> str:
    return "'" + f"{name}:{about}".replace("'", "'\\''").replace("\n", " ") + "'"


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
        here = f"complete -c dpctl -n '__dpctl_at {command.name}'"
        for name, about in command.commands.items():
            lines.append(f"{here} -f -a {name} -d {_fish_word(about)}")
        if command.values:
            lines.append(f"{here} -a '{command.values}'")
        for option in command.options:
            kinds = [
                f"{'-l' if name.startswith('--') else '-s'} {name.lstrip('-')}"
                for name in option.names
            ]
            needs = f" -x -a '{option.values}'" if option.values else " -r" if option.takes else ""
            lines.append(f"{here} {' '.join(kinds)}{needs} -d {_fish_word(option.about)}")
    return lines


def _fish_word(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", " ")
    return f"'{text}'"


def _page(command: Command) -> str:
    """A man page: name, synopsis, description, arguments, options, commands."""
    title = "-".join(("dpctl", *command.words)).upper()
    lines = [f'.TH "{title}" 1 "" "datapath"', ".SH NAME"]
    lines += [f"{_roff('-'.join(('dpctl', *command.words)))} \\- {_roff(command.about)}"]
    lines += [".SH SYNOPSIS", _roff(command.usage), ".SH DESCRIPTION"]
    for block in command.help.split("\n\n"):
        if block.startswith("\b"):
            lines += [".PP", ".nf", *map(_roff, block.strip("\b\n").splitlines()), ".fi"]
        else:
            lines += [".PP", _roff(" ".join(block.split()))]
    if command.arguments:
        lines.append(".SH ARGUMENTS")
        for name, about in command.arguments:
            lines += [".TP", f".B {_roff(name)}", _roff(about)]
    if command.options:
        lines.append(".SH OPTIONS")
        for option in command.options:
            lines += [".TP", f".B {_roff(option.written)}", _roff(option.about)]
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
