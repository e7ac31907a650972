# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl clean`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from datapath.cli.output import Format, FormatOption, print_rows
from datapath.cli.results import RESULTS, result_folders
from datapath.errors import LocalError
from datapath.spelling import counted

_KEEP = 5


def register(app: typer.Typer) -> None:
    app.command(short_help="Remove the remains of dead runs, and old results.")(clean)


def clean(
    results: Annotated[
        bool, typer.Option("--results", help="Also delete old result folders in results/.")
    ] = False,
    keep: Annotated[int, typer.Option(min=0, help="With --results: keep the newest N.")] = _KEEP,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List, and delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    fmt: FormatOption = Format.table,
) -> None:
    """Remove the remains of dead runs: holder processes, with their namespaces.

    A network dies with the dpctl that built it, even by kill -9, so this should find nothing.
    With --results it also lists old result folders, asks, and deletes them; a folder that a
    run is writing stays.

    \b
    dpctl clean
    dpctl clean --results --dry-run
    dpctl clean --results --keep 20 --yes
    """
    from datapath.lanes import orphans

    found = orphans.orphaned_holders()
    doomed = list(_doomed(keep)) if results else []
    _print(found, doomed, fmt)
    for pid in found if not dry_run else ():
        orphans.end(pid)
    if not found and not doomed:
        print("nothing to clean", file=sys.stderr)
    if doomed and not dry_run and (yes or _agreed(doomed)):
        _delete(doomed)


def _print(processes: Sequence[int], folders: Sequence[Path], fmt: Format) -> None:
    if fmt is Format.table:
        for pid in processes:
            print(f"holder process {pid} of a dead run", flush=True)
        for folder in folders:
            print(folder, flush=True)
        return
    rows: list[dict[str, object]] = [{"what": "process", "pid": pid} for pid in processes]
    rows += [{"what": "folder", "path": str(folder)} for folder in folders]
    print_rows(rows, [], fmt)


def _doomed(keep: int) -> Iterator[Path]:
    """Result folders to delete: all but the newest, those being written, and links."""
    from datapath.experiment.lock import is_being_written

    folders = result_folders(RESULTS)
    for folder in folders[: max(0, len(folders) - keep)]:
        if folder.is_symlink():
            print(f"{folder} is a link, and stays", file=sys.stderr)
        elif is_being_written(folder):
            print(f"{folder} is being written, and stays", file=sys.stderr)
        else:
            yield folder


def _agreed(doomed: Sequence[Path]) -> bool:
    what = counted(len(doomed), "result folder")
    if not sys.stdin.isatty():
        raise LocalError(
            f"{what} would be deleted, and there is no terminal to ask at",
            hint="--yes deletes without asking, --dry-run only lists",
        )
    return typer.confirm(f"delete these {what}?", err=True)


def _delete(doomed: Sequence[Path]) -> None:
    from datapath.experiment.lock import locked

    for folder in doomed:
        try:
            with locked(folder):
                shutil.rmtree(folder)
        except OSError as error:
            raise LocalError(
                f"{folder} is not deleted whole: {error.filename}: {error.strerror}",
                hint="delete it as the user to whom it belongs",
            ) from None
