# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl fabric`: the emulator of path backend fabric."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from datapath import strict_json
from datapath.cli.output import Format, FormatOption, print_record
from datapath.errors import RunFailed

if TYPE_CHECKING:
    from pydantic import BaseModel

    from datapath.experiment.wakeup import Report as WakeupReport
    from datapath.lanes.accuracy import Report

app = typer.Typer(no_args_is_help=True, help="The emulator of path backend fabric.")

_RATE_ERROR = 0.01


@app.command()
def accuracy(
    rate: Annotated[str, typer.Option(help="Rate of the link.")] = "1gbit",
    delay: Annotated[str, typer.Option(help="Delay one way.")] = "100us",
    mtu: Annotated[str, typer.Option(help="MTU of the network, bytes.")] = "9000",
    packets: Annotated[
        int, typer.Option(min=1, help="Number of packets that measure the delay.")
    ] = 2000,
    seconds: Annotated[
        float, typer.Option(min=1, max=86400, help="Time for measuring the rate.")
    ] = 5.0,
    fmt: FormatOption = Format.table,
) -> None:
    """Measure from outside how exactly this machine emulates a link.

    \b
    dpctl fabric accuracy --rate 1gbit --delay 100us

    Exit code 1 when the rate is off by more than 1 %, or the emulator says that the CPU does not
    suffice.
    """
    from datapath.lanes.accuracy import measure
    from datapath.lanes.spec import Path as PathSpec
    from datapath.lanes.spec import Topology

    report = measure(
        _setting(PathSpec, "rate", rate),
        _setting(PathSpec, "delay", delay),
        mtu=_setting(Topology, "mtu", mtu),
        packets=packets,
        seconds=seconds,
    )
    if fmt is Format.table:
        print(_table(report, rate, delay, mtu))
    else:
        print_record(report.as_dict(), fmt)
    if report.limit:
        raise RunFailed(report.limit, hint="end other work, or ask for less")
    if abs(report.rate_error) > _RATE_ERROR:
        raise RunFailed(
            f"the rate is off by {report.rate_error:+.2%}",
            hint="the sender may have lost the CPU: end other work and try again",
        )


@app.command()
def wakeup(
    out: Annotated[
        Path | None, typer.Option(help="Write a file for topology.wakeup of lane sim.")
    ] = None,
    scheduling: Annotated[
        str, typer.Option(help="As topology.scheduling; auto: as with an emulated link.")
    ] = "auto",
    keep_awake: Annotated[bool, typer.Option(help="As topology.keep_awake.")] = True,
    rate: Annotated[str, typer.Option(help="Rate of the emulated link.")] = "1gbit",
    delay: Annotated[str, typer.Option(help="Delay one way.")] = "100us",
    cc: Annotated[
        str, typer.Option(help="Congestion control of the stream that keeps the hosts busy.")
    ] = "vpc",
    seconds: Annotated[int, typer.Option(min=1, max=600, help="Time for measuring.")] = 3,
    fmt: FormatOption = Format.table,
) -> None:
    """Measure how late programs of lane netns wake on this machine, after a packet and a timer.

    A stream runs over an emulated link; its devices and the emulator count their sleeps. In a sweep
    that has the live runs as well, topology.wakeup: live takes the numbers of each of these.

    \b
    dpctl fabric wakeup --out wakeup.json
    """
    from datapath import disk
    from datapath.experiment.wakeup import measure
    from datapath.lanes.spec import Path as PathSpec
    from datapath.lanes.spec import Topology

    if scheduling not in get_args(Topology.model_fields["scheduling"].annotation):
        raise typer.BadParameter(f"no scheduling {scheduling!r}: see dpctl schema")
    report = measure(
        {"scheduling": scheduling, "keep_awake": keep_awake},
        rate_bps=_setting(PathSpec, "rate", rate),
        delay_ns=_setting(PathSpec, "delay", delay),
        cc=cc,
        seconds=seconds,
    )
    if fmt is Format.table:
        print(_wakeup_table(report))
    else:
        print_record(report.as_dict(), fmt)
    if out is not None:
        disk.write_atomic(out, (strict_json.text(report.as_dict(), indent=1) + "\n").encode())


def _wakeup_table(report: WakeupReport) -> str:
    shares = ("p50", "p90", "p99", "p99.9")
    rows = [["late by, us", *shares, "sleeps"]]
    parts = {"after a packet": "packet", "after a timer": "timer", "the emulator": "emulator"}
    for name, part in parts.items():
        quantiles = getattr(report.setting, part)
        rows.append([name, *(f"{quantiles[share] / 1000:.1f}" for share in shares)])
        rows[-1].append(str(report.sleeps[part]) if part in report.sleeps else "")
    head = f"scheduling {report.scheduling}, {report.kept_awake} CPUs kept awake"
    lines = [f"  {row[0]:<14}" + "".join(f"{cell:>9}" for cell in row[1:]) for row in rows]
    awake = f"  awake for {report.setting.awake / 1000:.1f} us after each sleep, in the mean"
    return "\n".join([head, *report.trouble, *lines, awake])


def _table(report: Report, rate: str, delay: str, mtu: str) -> str:
    error, without = report.delay_error, report.without
    rows = [
        ("rate", f"{report.rate_measured_bps / 1e6:.2f} Mbit/s", f"{report.rate_error:+.3%}"),
        ("delay, error", *_spread(error.p50, error.p99, error.max)),
        ("... without emulator", *_spread(without.p50, without.p99, without.max)),
        ("late when saturated", *_spread(*_late(report))),
        ("marked when saturated", f"{report.marked_share:.1%}", "of ECN-capable packets"),
        ("CPU when saturated", f"{report.cpu_share:.0%}", f"of one, priority {report.priority}"),
    ]
    head = f"{rate}, {delay} each way, MTU {mtu}, {error.n} packets"
    return "\n".join([head, *(f"  {name:<22}  {a:>16}  {b}" for name, a, b in rows)])


def _late(report: Report) -> tuple[float, float, float]:
    return report.late_p50_ns, report.late_p99_ns, report.late_max_ns


def _spread(p50: float, p99: float, most: float) -> tuple[str, str]:
    return f"p50 {p50 / 1000:.1f} us", f"p99 {p99 / 1000:.1f} us, most {most / 1000:.0f} us"


def _setting(model: type[BaseModel], key: str, text: str) -> int:
    """The value of an option that has the name and the limits of a key of topology or path."""
    from pydantic import ValidationError

    from datapath.experiment.document import Place, Problem
    from datapath.experiment.explain import explain
    from datapath.experiment.schema import Schema

    data = {key: text}
    try:
        return int(getattr(model.model_validate(data), key))
    except ValidationError as error:
        [problem] = explain(
            error.errors(include_url=False),
            data,
            Schema(model.model_json_schema),
            lambda _, message, of_key: Problem("", Place(0, 0), "", message),
        )
    raise typer.BadParameter(problem.message, param_hint=f"--{key}")
