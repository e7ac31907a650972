# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl cc of | set`: the congestion control of programs that run."""

from __future__ import annotations

from typing import Annotated

import typer

from datapath.cli.algorithms import Params, names, parameters
from datapath.cli.output import Format, FormatOption, print_rows, print_told, tell_error
from datapath.spelling import counted

_WHICH = "PID|PROGRAM"
_COLUMNS = ("pid", "program", "device", "qpn", "cc", "changes", "cwnd_bytes", "params")


def register(app: typer.Typer) -> None:
    app.command("of", short_help="Show which algorithm each QP of a running program uses.")(of)
    app.command("set", short_help="Change the algorithm of a running program's QPs.")(set_)


def of(
    program: Annotated[
        str | None,
        typer.Argument(metavar=_WHICH, help="The program; default: all.", show_default=False),
    ] = None,
    fmt: FormatOption = Format.table,
) -> None:
    """Show which algorithm each QP of a running program uses, with its parameters.

    \b
    dpctl cc of                        every program with a device of ours
    dpctl cc of ib_write_bw
    dpctl cc of 4711 --format json
    """
    from datapath.errors import LocalError, RemoteError
    from datapath.verbs import control

    found = control.devices(program)
    if program is not None:
        print_rows(control.algorithms(found), _COLUMNS, fmt)
        return
    rows = []
    for item in found:
        try:
            rows += control.algorithms([item])
        except (LocalError, RemoteError) as error:  # the others are not to blame
            tell_error(str(error), error.hint)
    print_rows(rows, _COLUMNS, fmt)


def set_(
    program: Annotated[str, typer.Argument(metavar=_WHICH, help="A running program.")],
    algorithm: Annotated[
        str,
        typer.Argument(metavar="ALGO", help="A name, or ./file.py:Class.", autocompletion=names),
    ],
    param: Params = None,
    qpn: Annotated[
        str,
        typer.Option(metavar="N|all", help="One QP, or all: present and future ones."),
    ] = "all",
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this device of the program.", show_default=False),
    ] = None,
    fmt: FormatOption = Format.table,
) -> None:
    """Change the congestion-control algorithm of a running program's QPs.

    The algorithm begins anew on each QP. Packets in flight stay in flight, and
    none is lost or sent twice. An error leaves its device unchanged; devices
    that came before keep the change. The process may be in any namespace; it
    must be your own, unless you are root.

    \b
    dpctl cc set ib_write_bw swift
    dpctl cc set 4711 fixed -p window_bytes=65536 --qpn 10162
    dpctl cc set 4711 ./my_cc.py:KeepLow -p decrease=0.5 --device dp0
    """
    from datapath.cc import compile_algorithm
    from datapath.errors import LocalError
    from datapath.verbs import control

    if qpn != "all" and not qpn.isdecimal():
        raise LocalError(f"--qpn {qpn} is not a QP number", hint="give a number, or all")
    found = control.devices(program)
    if device is not None:
        names = [item.name for item in found]
        found = [item for item in found if item.name == device]
        if not found:
            raise LocalError(f"{program} has no device {device}", hint=f"it has {', '.join(names)}")
    compiled = compile_algorithm(algorithm, parameters(algorithm, param))
    number = None if qpn == "all" else int(qpn)
    changed = control.set_algorithm(found, number, compiled.path)
    record = {"algorithm": compiled.name, "pid": found[0].pid, "qps": changed}
    print_told(f"{compiled.name}: {counted(changed, 'QP')} of {found[0].pid}", record, fmt)
