# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every command of dpctl: usage, help, options."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from datapath.cli.app import app
from datapath.cli.completion import Command, commands
from datapath.cli.documents import DOCUMENTS
from datapath.cli.reference import markdown


def page() -> Iterator[str]:
    yield from ("# Commands", "")
    yield "Each command tells the same by `--help`, and as a man page (`dpctl man DIR`)."
    yield ""
    for command in commands(app):
        yield from _section(command)


def _section(command: Command) -> Iterator[str]:
    yield from (f"## {command.name}", "", "```text", command.usage.strip(), "```", "")
    yield from markdown.doc(inspect.cleandoc(command.help))
    inside = [
        [f"[{command.name} {name}](#{'-'.join((*command.name.split(), name))})", _cell(about)]
        for name, about in command.commands.items()
    ]
    yield from markdown.table(["command", "what it does"], inside)
    options = [[markdown.code(option.written), _cell(option.about)] for option in command.options]
    yield from markdown.table(["option", "meaning"], options)
    words = " ".join(command.words)
    if words in DOCUMENTS:
        anchor = words.replace(" ", "-")
        yield f"`--format json` prints [this](output-formats.md#{anchor})."
        yield ""


def _cell(about: str) -> str:
    return markdown.text(about)
