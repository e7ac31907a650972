# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl nccl`: the network plug-in for NCCL and RCCL, and a check of any such plug-in."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from datapath import privileges
from datapath.cli.output import Format, FormatOption, print_rows
from datapath.errors import LocalError, RunFailed

if TYPE_CHECKING:
    from datapath.collectives.nccl.check import Start

app = typer.Typer(
    no_args_is_help=True, help="Network plug-ins of NCCL and RCCL: ours, and a check of any."
)

_LOOPBACK = ("127.0.71.1", "127.0.71.2")


class Port(StrEnum):
    """The port of the sides' devices; none: they have no device of ours."""

    udp = "udp"
    afxdp = "afxdp"
    none = "none"


@app.command()
def path() -> None:
    """Where libnccl-net-dp.so is: the value of NCCL_NET_PLUGIN.

    \b
    export NCCL_NET_PLUGIN=$(dpctl nccl path)
    dpctl exec --device dp0=afxdp:eth1 -- ./all_reduce_perf
    """
    from datapath.native import paths

    print(paths.nccl_plugin())


@app.command()
def cases(fmt: FormatOption = Format.table) -> None:
    """List what a plug-in has to do.

    \b
    dpctl nccl cases
    """
    from datapath.collectives.nccl.check import cases_named

    rows = [{"case": case.name, "summary": case.summary} for case in cases_named([])]
    print_rows(rows, ("case", "summary"), fmt)


def _share(text: str) -> str:
    """The text itself, which is a share; typer tells the option of the error."""
    from datapath.units import parse_fraction

    try:
        parse_fraction(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


_Loss = Annotated[
    str,
    typer.Option(callback=_share, help="Share of packets that is lost, each way. Needs root."),
]


@app.command()
def check(
    plugin: Annotated[
        Path | None,
        typer.Argument(
            metavar="PLUGIN", help="A libnccl-net-*.so. Default: ours.", show_default=False
        ),
    ] = None,
    version: Annotated[
        list[int] | None,
        typer.Option(help="Version of the interface, 8 to 12; repeatable. Default: all it has."),
    ] = None,
    case: Annotated[
        list[str] | None, typer.Option(help="A case of `dpctl nccl cases`; repeatable.")
    ] = None,
    port: Annotated[Port, typer.Option(help="Port of the device that each side gets.")] = Port.udp,
    loss: _Loss = "0",
    patience: Annotated[
        float, typer.Option(min=1, max=86400, help="Seconds within which a call has to return.")
    ] = 30.0,
    fmt: FormatOption = Format.table,
) -> None:
    """Run a plug-in as NCCL does, between two processes on host memory. Needs no GPU.

    Without loss and with the udp port, both sides are on loopback; else on two hosts
    (network namespaces), which needs root. Exit code 1: the plug-in does something wrong.

    \b
    dpctl nccl check
    dpctl nccl check ./libnccl-net-mine.so --port none --version 11
    dpctl nccl check --loss 5% --case bulk
    """
    from datapath.collectives.nccl.check import check as run
    from datapath.native import paths

    file = plugin or paths.nccl_plugin()
    rows: list[dict[str, Any]] = []
    with _hosts(port, loss) as start:
        for verdict in run(
            file, start, versions=version or (), names=case or (), patience_s=patience
        ):
            if fmt is not Format.ndjson:
                word = "wrong" if verdict.wrong else "right"
                print(f"v{verdict.version} {verdict.case}: {word}", file=sys.stderr)
            row = {
                "case": verdict.case,
                "interface": verdict.version,
                "result": "wrong" if verdict.wrong else "right",
                "wrong": verdict.wrong,
            }
            rows.append(row)
            if fmt is Format.ndjson:
                print_rows([row], tuple(row), fmt)
    if fmt is not Format.ndjson:
        print_rows(rows, ("case", "interface", "result", "wrong"), fmt)
    failed = sum(1 for row in rows if row["wrong"])
    if failed:
        raise RunFailed(f"{file.name}: {failed} of {len(rows)} verdicts are wrong")


@contextlib.contextmanager
def _hosts(port: Port, loss: str) -> Iterator[Start]:
    """Two hosts on which programs can be started, as few privileges as the wishes allow."""
    from datapath.collectives.nccl.check import local
    from datapath.units import parse_fraction
    from datapath.verbs.launch import device_environment

    lossy = parse_fraction(loss) > 0
    if port is Port.none:
        if lossy:
            raise LocalError(
                "--loss is that of a path between devices", hint="give --port udp or afxdp"
            )
        yield local([{}, {}])
    elif port is Port.udp and not lossy:
        yield local([device_environment("dp0", f"udp:{address}") for address in _LOOPBACK])
    else:
        with _namespaces(port, loss) as start:
            yield start


@contextlib.contextmanager
def _namespaces(port: Port, loss: str) -> Iterator[Start]:
    from datapath.lanes.netns import NetnsNetwork
    from datapath.lanes.spec import Path as NetworkPath
    from datapath.lanes.spec import Topology
    from datapath.verbs.launch import device_environment

    privileges.check("a network of two hosts")
    with NetnsNetwork(Topology(), "bpf") as network:
        network.set_path(NetworkPath.model_validate({"loss": loss}), seed=1)

        def start(rank: int, argv: Any) -> Any:
            host = network.hosts[rank]
            endpoint = host.endpoint
            where = endpoint.netdev if port is Port.afxdp else endpoint.ipv4
            return host.popen(argv, env=device_environment("dp0", f"{port.value}:{where}"))

        yield start
