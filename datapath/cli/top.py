# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl top`: the QPs of running programs and the links of running experiments, refreshed."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import typer

from datapath.asking import ask_all
from datapath.cli.output import (
    Format,
    FormatOption,
    print_record,
    terminal_width,
    until_interrupted,
)
from datapath.cli.screen import Screen
from datapath.errors import LocalError
from datapath.terminal import printable

_SHORTEST_S = 0.1
_PATIENCE_S = 2.0
"""How long a run or program that does not answer delays what the others have told."""
_Asked = TypeVar("_Asked")
_Told = TypeVar("_Told")
DROP_CAUSES = {
    "dropped": "loss",
    "overflowed": "full queue",
    "policed": "policer",
    "aqm_dropped": "AQM",
    "shaped": "shaped class",
    "starved": "no CPU",
}
"""Counters of links, and the causes of drops that they count."""


@dataclass(frozen=True)
class _Column:
    """least: its width at least, so that lines stay as they are while numbers change."""

    heading: str
    unit: str = ""
    least: int = 0


_QP_COLUMNS = {
    "program": _Column("program", least=10),
    "pid": _Column("pid", least=7),
    "qpn": _Column("QPN", least=8),
    "cc": _Column("cc", least=7),
    "goodput_bps": _Column("goodput", "bit/s", 11),
    "rtt_ns": _Column("RTT", "ns", 8),
    "cwnd_bytes": _Column("cwnd", "B", 8),
    "inflight_bytes": _Column("inflight", "B", 8),
    "retransmitted_packets": _Column("retr.", "1", 9),
    "pacing_rate_bps": _Column("rate", "bit/s", 11),
    "marked_packets": _Column("marked", "1", 9),
    "device": _Column("device", least=6),
}
_LINK_COLUMNS = {
    "run": _Column("run", least=7),
    "link": _Column("link", least=8),
    "passed_pps": _Column("packets", "1/s", 8),
    "queue_bytes": _Column("queue", "B", 8),
    "dropped_packets": _Column("drops", "1", 9),
    "marked_packets": _Column("marks", "1", 9),
}
_BELOW = "    "
_LEFT = ("program", "cc", "device", "link")


def register(app: typer.Typer) -> None:
    app.command(short_help="Show the QPs and links that are at work, refreshed.")(top)


@dataclass
class Sample:
    """The counters at a time, by QP and by link.  silent: who did not answer, in words."""

    time_s: float
    qps: dict[tuple[int, str, int], dict[str, Any]] = field(default_factory=dict)
    links: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)


def top(
    program: Annotated[
        str | None,
        typer.Argument(
            metavar="PID|PROGRAM",
            help="Only this program; of a name, all that have it.",
            show_default=False,
        ),
    ] = None,
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="Between two samples, such as 500ms.")
    ] = "1s",
    count: Annotated[
        int | None,
        typer.Option("-n", metavar="N", min=1, help="End after N samples.", show_default=False),
    ] = None,
    fmt: FormatOption = Format.table,
) -> None:
    """Show each QP of running programs, and each link of running experiments, refreshed.

    Goodput and packets are those of the last interval, retransmitted and marked packets those
    since the QP was made, drops and marks those since the run began. Programs of `dpctl exec` and
    of experiments are shown; not those in guests and on machines reached by ssh, nor simulated
    ones. The busiest QPs come first, as many as the terminal has lines for.

    \b
    dpctl top
    dpctl top ib_write_bw --interval 200ms
    dpctl top -n 10 --format ndjson
    """
    interval_s = _interval_s(interval)
    before = sample(program)
    due, taken = before.time_s, 0
    forever = until_interrupted() if count is None else contextlib.nullcontext()
    with forever, Screen(fmt is Format.table and count is None) as screen:
        while count is None or taken < count:
            due = max(due + interval_s, time.monotonic())
            time.sleep(due - time.monotonic() if due > time.monotonic() else 0)
            now = sample(program)
            _show(between(before, now), fmt, screen)
            before, taken = now, taken + 1


def _interval_s(text: str) -> float:
    from datapath.units import parse_duration_ns

    try:
        seconds = parse_duration_ns(text) / 1e9
    except ValueError as error:
        raise LocalError(f"--interval: {error}") from None
    if seconds < _SHORTEST_S:
        raise LocalError(f"--interval {text} is too short", hint="100ms is the shortest")
    return seconds


def sample(program: str | None = None, *, family: int | None = None) -> Sample:
    """What the QPs and links count now; links only where no program is named.

    family: only of this process and those that it has started, and of theirs.
    LocalError when a program that is named has no device.
    """
    from datapath import processes
    from datapath.verbs import control

    taken = Sample(time.monotonic())
    only = None if family is None else processes.family(family)
    devices = control.devices(program, several=True) if only is None else control.devices_of(only)
    for rows in _all(lambda device: control.algorithms([device], _PATIENCE_S), devices, taken):
        for row in rows:
            taken.qps[row["pid"], row["device"], row["qpn"]] = row
    if program is None:
        _add_links(taken, only)
    return taken


def _add_links(taken: Sample, only: Collection[int] | None) -> None:
    from datapath.lanes import visiting

    found, silent = visiting.survey(_PATIENCE_S)
    runs = [run for run in found if only is None or run.pid in only]
    if only is None:
        taken.silent += map(str, silent)
    links = _all(lambda run: (run.pid, run.links(_PATIENCE_S)), runs, taken)
    for pid, told in links:
        for name, counters in told.items():
            taken.links[pid, name] = dict(counters)


def _all(ask: Callable[[_Asked], _Told], whom: Sequence[_Asked], taken: Sample) -> list[_Told]:
    """What each of them tells; `taken` names who does not answer."""
    told, silent = ask_all(ask, whom)
    taken.silent += map(str, silent)
    return told


def between(before: Sample, now: Sample) -> dict[str, Any]:
    """The rows to show: what stands in `now`, and rates since `before`."""
    seconds = now.time_s - before.time_s
    qps = [_qp(row, before.qps.get(key), seconds) for key, row in now.qps.items()]
    links = []
    for (pid, name), counters in now.links.items():
        past = before.links.get((pid, name), {})
        links.append(
            {
                "run": pid,
                "link": name,
                "passed_pps": _rate(counters, past, "passed", seconds),
                "queue_bytes": counters.get("queue_bytes"),
                "dropped_packets": sum(int(counters.get(drop, 0)) for drop in DROP_CAUSES),
                "marked_packets": counters.get("marked", 0),
            }
        )
    qps.sort(key=lambda row: -(row["goodput_bps"] or 0))
    return {"seconds": round(seconds, 6), "qps": qps, "links": links, "silent": now.silent}


def _qp(row: Mapping[str, Any], past: Mapping[str, Any] | None, seconds: float) -> dict[str, Any]:
    bytes_per_s = _rate(row, past or {}, "delivered_bytes", seconds)
    shown = {name: row.get(name) for name in _QP_COLUMNS}
    shown["goodput_bps"] = None if bytes_per_s is None else 8 * bytes_per_s
    shown["rtt_ns"] = row.get("srtt_ns") or None
    return shown


def _rate(
    row: Mapping[str, Any], past: Mapping[str, Any], name: str, seconds: float
) -> float | None:
    """Per second; None where it is not known, and where the count began anew."""
    if name not in row or name not in past or seconds <= 0 or row[name] < past[name]:
        return None
    return float(row[name] - past[name]) / seconds


# ---- showing -------------------------------------------------------------------------


def _show(rows: Mapping[str, Any], fmt: Format, screen: Screen) -> None:
    if fmt is not Format.table:
        print_record(rows, fmt)
        sys.stdout.flush()
        return
    screen.put("\n".join([*table(rows, terminal_width()), "", ""]))


def table(rows: Mapping[str, Any], width: int) -> Iterator[str]:
    """Lines of at most `width` columns: links first, since there are few of them."""
    yield from (printable(told)[:width] for told in rows["silent"])
    if not (rows["qps"] or rows["links"] or rows["silent"]):
        yield "no program has a device of ours open, and no experiment has a path"
    if rows["links"]:
        yield from _columns(rows["links"], _LINK_COLUMNS, width)
        yield ""
    if rows["qps"]:
        yield from _columns(rows["qps"], _QP_COLUMNS, width)


def _columns(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, _Column], width: int
) -> Iterator[str]:
    """Aligned; the columns that find no room stand below the others of their row."""
    lines: list[list[list[str]]] = [[]]
    used = 0
    for name, column in columns.items():
        cells = [column.heading, *(_cell(row[name], column.unit) for row in rows)]
        wide = max(column.least, *map(len, cells))
        if lines[-1] and used + wide > width:
            lines.append([])
            used = len(_BELOW)
        used += wide + 2
        left = name in _LEFT
        lines[-1].append([cell.ljust(wide) if left else cell.rjust(wide) for cell in cells])
    for row in range(len(rows) + 1):
        for number, line in enumerate(lines):
            yield (_BELOW * bool(number) + "  ".join(cells[row] for cells in line)).rstrip()


def _cell(value: object, unit: str) -> str:
    from datapath.report import display

    if value is None or isinstance(value, str):
        return printable(value) if value else display.DASH
    if isinstance(value, (int, float)) and unit and value:
        return display.quantity(float(value), unit).replace("\N{NO-BREAK SPACE}", " ")
    return f"{value:g}" if isinstance(value, float) else str(value)
