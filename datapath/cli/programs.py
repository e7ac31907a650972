# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl exec | xdp | selftest`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from datapath.cli.algorithms import Params, names, parameters
from datapath.cli.metrics import MetricsOption, serve_beside
from datapath.cli.output import Format, FormatOption, print_record
from datapath.errors import LocalError
from datapath.verbs.device_keys import DEVICE_KEYS

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

_Program = Annotated[
    list[str], typer.Argument(metavar="PROGRAM [ARGUMENT]...", help="A verbs program.")
]
_Devices = Annotated[
    list[str],
    typer.Option(
        "--device",
        metavar="NAME=PORT:WHERE",
        help="A device for the program, e.g. dp0=afxdp:eth1 or dp0=udp:10.0.0.1; repeatable. "
        "Settings follow after semicolons: dp0=afxdp:eth1;mode=standard;ecn=1. Keys: "
        + "; ".join(f"{key.name} ({key.expected})" for key in DEVICE_KEYS.values())
        + ".",
    ),
]
_Cc = Annotated[
    str | None,
    typer.Option(
        metavar="ALGO",
        help="Congestion control: a name or ./file.py:Class.",
        show_default=False,
        autocompletion=names,
    ),
]
_Mode = Annotated[
    str | None,
    typer.Option(
        metavar="auto|standard",
        help="auto offers selective repeat to the peer; standard never does.",
        show_default=False,
    ),
]
_Stats = Annotated[
    Path | None,
    typer.Option(
        metavar="PREFIX",
        help="Write the device's counters to PREFIX.<pid>.<device>.json at the end.",
    ),
]
_Series = Annotated[
    str | None,
    typer.Option(
        metavar="PREFIX",
        help="Sample the QPs into PREFIX.*.series; settings follow after semicolons: "
        "PREFIX;interval_us=1000;qps=4.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    app.command(
        "exec",
        context_settings={"allow_interspersed_args": False},
        short_help="Run a verbs program on our RDMA device.",
    )(exec_)
    app.command(context_settings=_PASS_ON, add_help_option=False, short_help="Run the tests.")(
        selftest
    )
    app.add_typer(_xdp, name="xdp")


def exec_(
    program: _Program,
    device: _Devices,
    cc: _Cc = None,
    param: Params = None,
    mode: _Mode = None,
    stats: _Stats = None,
    series: _Series = None,
    metrics: MetricsOption = None,
) -> None:
    """Run a verbs program on our RDMA device; no kernel module is needed.

    \b
    dpctl exec --device dp0=afxdp:eth1 -- ibv_devinfo -v
    dpctl exec --device dp0=udp:10.0.0.1 --cc swift -- ib_write_bw -d dp0 10.0.0.2
    dpctl exec --device 'dp0=afxdp:eth1;mode=standard' -- python3 my_pyverbs.py
    """
    from datapath.verbs.launch import exec_program

    if param and cc is None:
        raise LocalError("-p sets parameters of an algorithm", hint="name it: --cc ALGO")
    if metrics is not None:
        serve_beside(metrics)
    exec_program(
        program,
        device,
        cc=cc,
        cc_params=None if cc is None else parameters(cc, param),
        mode=mode,
        stats=stats,
        series=series,
    )


_xdp = typer.Typer(help="XDP programs: look inside a compiled object.", no_args_is_help=True)


@_xdp.callback()
def _xdp_group() -> None:
    """XDP programs: look inside a compiled object."""


@_xdp.command("inspect")
def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE.o", help="A compiled BPF object.")],
    fmt: FormatOption = Format.table,
) -> None:
    """Show programs, maps, sizes, licence and multi-buffer support of a BPF object.

    \b
    dpctl xdp inspect build/datapath/xdp/steer.bpf.o
    dpctl xdp inspect my_prog.o --format json
    """
    from datapath.xdp.inspect import as_text
    from datapath.xdp.inspect import inspect as inspect_object

    found = inspect_object(file)
    if fmt is Format.table:
        sys.stdout.write(as_text(found))
    else:
        print_record(asdict(found), fmt)


def selftest(context: typer.Context) -> int:
    """Run the tests: lint, C under sanitizers, pytest; arguments go to pytest.

    \b
    dpctl selftest
    dpctl selftest tests/experiment -k sweep
    dpctl selftest --stage c,san
    dpctl selftest --all      what takes long as well
    """
    if context.args in (["--help"], ["-h"]):
        typer.echo(context.get_help())
        return 0
    from datapath.cli.selftest import selftest as run_tests

    return run_tests(context.args)
