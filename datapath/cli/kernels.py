# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl kernel install | list | remove`: kernels for guests."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from datapath.cli.output import Format, FormatOption, print_rows
from datapath.errors import CapabilityError

app = typer.Typer(name="kernel", help="Kernels for guests.", no_args_is_help=True)

_NAME_HELP = "A version such as 6.12, an exact release, or backports."


@app.callback()
def _group() -> None:
    """Kernels for guests, from Debian packages; nothing is installed on the machine."""


@app.command("install")
def install(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help=_NAME_HELP)],
    siw: Annotated[
        bool, typer.Option("--siw/--no-siw", help="Build the siw module for it as well.")
    ] = True,
    again: Annotated[bool, typer.Option("--again", help="Replace an installed one.")] = False,
    fmt: FormatOption = Format.table,
) -> None:
    """Download a kernel for guests, unpack it into the cache and build siw for it.

    The newest release that NAME means is taken: from this machine's own Debian
    suites, otherwise from the backports of Debian 13.

    \b
    dpctl kernel install 6.12
    dpctl kernel install backports      newest; AF_XDP zero-copy on virtio-net
    dpctl kernel install 6.17 --no-siw
    """
    from datapath.lanes import kernels

    made = [kernels.install(name, _progress, with_siw=siw, again=again) for name in names]
    print_rows([_row(kernel) for kernel in made], ("release", "siw", "path"), fmt)


@app.command("list")
def list_(
    here: Annotated[
        bool, typer.Option("--installed", help="List installed kernels only, without the network.")
    ] = False,
    fmt: FormatOption = Format.table,
) -> None:
    """List the kernels that are installed, and those that can be installed.

    \b
    dpctl kernel list
    dpctl kernel list --installed --format json
    """
    from datapath.lanes import kernels

    rows = [_row(kernel) for kernel in kernels.installed()]
    if not here:
        known = {row["release"] for row in rows}
        try:
            found = kernels.available(_progress)
        except CapabilityError as error:
            found = []
            _progress(str(error))
        rows += [
            {"release": release, "state": "available", "suite": _suite(backport)}
            for release, backport in found
            if release not in known
        ]
    print_rows(rows, ("release", "state", "suite", "siw", "path"), fmt)


@app.command("remove")
def remove(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help=_NAME_HELP)],
) -> None:
    """Remove all installed kernels that match NAME.

    \b
    dpctl kernel remove 6.12
    dpctl kernel remove 7.2.12+deb13-amd64
    """
    from datapath.lanes import kernels

    for name in names:
        for release in kernels.remove(name, _progress):
            typer.echo(release)


def _row(kernel: Any) -> dict[str, Any]:
    return {
        "release": kernel.release,
        "state": "installed",
        "suite": _suite(kernel.backport),
        "siw": "yes" if kernel.siw else "no",
        "siw_reason": kernel.siw_reason,
        "path": str(kernel.vmlinuz),
        "modules": str(kernel.modules),
        "siw_path": str(kernel.siw) if kernel.siw else None,
    }


def _suite(backport: bool) -> str:
    return "backports" if backport else "own"


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
