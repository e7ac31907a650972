# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl validate | schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from datapath.cli.output import Format, FormatOption, print_rows, tell_error, tell_note
from datapath.errors import DatapathError, LocalError
from datapath.spelling import counted

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change one value of the file; repeatable."),
]


def register(app: typer.Typer) -> None:
    app.command(short_help="Check an experiment file.")(validate)
    app.command(
        context_settings={"ignore_unknown_options": True},
        short_help="Print the file format as JSON Schema.",
    )(schema)


def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Experiment files.")],
    set_: SetOption = None,
    fmt: FormatOption = Format.table,
) -> int:
    """Check experiment files; tells every mistake with its line, its column and a hint.

    \b
    dpctl validate experiments/quickstart.yaml
    dpctl validate experiments/*.yaml
    dpctl validate my.yaml --set workload.size=1MiB --format json
    """
    problems: list[dict[str, Any]] = []
    code = 0
    for file in files:
        try:
            found = _checked(file, list(set_ or []), fmt)
        except DatapathError as error:
            if len(files) == 1:
                raise
            tell_error(str(error), error.hint)
            code = error.exit_code
            continue
        problems += found
        code = LocalError.exit_code if found else code
    if fmt is not Format.table:
        print_rows(problems, [], fmt)
    return code


def _checked(file: Path, overrides: list[str], fmt: Format) -> list[dict[str, Any]]:
    """The problems of a file as rows for a program; for people it raises the first error."""
    from datapath.experiment.document import InvalidFile
    from datapath.experiment.load import load
    from datapath.experiment.remarks import remarks

    try:
        experiment = load(file, overrides)
    except InvalidFile as error:
        if fmt is Format.table:
            raise
        return [
            {
                "file": problem.file,
                "line": problem.place.line,
                "column": problem.place.column,
                "path": problem.path,
                "message": problem.message,
            }
            for problem in error.problems
        ]
    if fmt is Format.table:
        points, repetitions = len(experiment.points), experiment.spec.sweep.repetitions
        runs, claims = points * repetitions, len(experiment.spec.report.expect)
        counts = (counted(points, "point"), counted(runs, "run"), counted(claims, "claim"))
        print(f"{file}: valid: {', '.join(counts)}")
        for remark in remarks(experiment):
            tell_note(remark)
    return []


def schema(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND...",
            help="Of what this command prints with --format json; default: of experiment files.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print the format of experiment files, or of a command's output, as JSON Schema.

    \b
    dpctl schema > experiment.schema.json
    dpctl schema cc list
    dpctl schema run --dry-run

    An editor with a YAML language server takes it from the first line of a file:

    \b
    # yaml-language-server: $schema=experiment.schema.json
    """
    if command:
        from datapath.cli.documents import schema as of_command

        print(json.dumps(of_command(" ".join(command)), indent=2))
        return
    from datapath.experiment.spec import json_schema

    print(json.dumps(json_schema(), indent=2))
