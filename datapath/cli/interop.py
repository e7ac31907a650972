# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl interop` and `dpctl trace`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from datapath.cli.output import Format, FormatOption, print_rows
from datapath.errors import LocalError
from datapath.spelling import counted
from datapath.units import parse_duration_ns

if TYPE_CHECKING:
    from datapath.interop.trace import Report


def register(app: typer.Typer) -> None:
    app.command(short_help="Our device against the kernel's rxe, in every combination.")(interop)
    app.command(short_help="Judge RoCEv2 connections in a capture.")(trace)
    app.command(short_help="The flows of a capture as a traffic table.")(flows)


def flows(
    capture: Annotated[
        Path, typer.Argument(metavar="CAPTURE", help="A capture, pcap or pcapng; - is stdin.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The table: *.csv or *.parquet.")],
    gap: Annotated[str, typer.Option(help="A longer pause ends a flow.")] = "10ms",
    fmt: FormatOption = Format.table,
) -> None:
    """Make a table for workload `table` of what connections in a capture have sent.

    \b
    dpctl flows capture.pcap --out flows.csv
    tcpdump -i eth1 -w - | dpctl flows - --out flows.csv

    Hosts are numbered as they appear in the capture; the command prints which is which.
    """
    from datapath.interop import flows as captured
    from datapath.workloads.traffic import rows_file

    try:
        gap_ns = parse_duration_ns(gap)
    except ValueError as error:
        raise LocalError(f"--gap: {error}") from None
    found = captured.read(capture, gap_ns=gap_ns)
    rows_file.write(out, found.flows)
    rows = [{"number": number, "address": address} for number, address in enumerate(found.hosts)]
    print_rows(rows, ("number", "address"), fmt)
    size = int(found.flows["bytes"].sum())
    print(
        f"{counted(len(found.flows), 'flow')}, {counted(size, 'byte')} of payload: {out}",
        file=sys.stderr,
    )


def interop(
    port: Annotated[
        str, typer.Option(metavar="PORT,...", help="Ports of our device.")
    ] = "afxdp,udp",
    mtu: Annotated[str, typer.Option(metavar="BYTES,...", help="Path MTUs to try.")] = "1024,4096",
    loss: Annotated[
        str, typer.Option(metavar="SHARE,...", help="Shares of packets to lose in each direction.")
    ] = "0,0.1%,1%",
    role: Annotated[
        str, typer.Option(metavar="ROLE,...", help="Roles of our device.")
    ] = "requester,responder",
    kernel: Annotated[
        str, typer.Option(metavar="NAME", help="Kernel of the guest, as for dpctl kernel install.")
    ] = "6.12",
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for logs, captures and matrix.json.")
    ] = Path("results/interop"),
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the table there as well.")
    ] = None,
    fmt: FormatOption = Format.table,
) -> int:
    """Run every operation between our device and rxe in a guest; judge data and packets.

    Compares all data byte by byte, and checks every packet of the capture.
    Exit code 1 when a cell is red.

    \b
    dpctl interop
    dpctl interop --port udp --mtu 4096 --loss 0
    dpctl interop --markdown docs/interop-matrix.md
    """
    from datapath.interop import matrix
    from datapath.lanes import kernels

    wanted = matrix.cells(_words(port), _numbers(mtu), _shares(loss), _words(role))
    kernels.ensure(kernel, lambda text: print(text, file=sys.stderr))
    facts, outcomes = matrix.run(
        wanted, out, kernel=kernel, tell=lambda o: print(matrix.text_of(o), file=sys.stderr)
    )
    print_rows([outcome.row() for outcome in outcomes], matrix.COLUMNS, fmt)
    if markdown is not None:
        command = f"dpctl interop --markdown {markdown}"
        markdown.write_text(matrix.markdown(facts, outcomes, command))
    return 0 if all(outcome.green for outcome in outcomes) else 1


def _words(text: str) -> list[str]:
    return [word for word in text.replace(" ", "").split(",") if word]


def _numbers(text: str) -> list[int]:
    words = _words(text)
    for word in words:
        if not word.isdecimal():
            raise LocalError(f"{word!r} is not a number of bytes", hint="write, for example, 1024")
    return [int(word) for word in words]


def _shares(text: str) -> list[float]:
    from datapath.units import parse_fraction

    try:
        return [parse_fraction(word) for word in _words(text)]
    except ValueError as error:
        raise LocalError(str(error), hint="--loss 0,0.1%,1%") from None


def _syndrome(text: str) -> int:
    known = {f"{value:#x}": value for value in range(0x61, 0x65)}
    if text.lower() not in known:
        raise LocalError(f"{text!r} is no fatal NAK", hint=f"there are {', '.join(known)}")
    return known[text.lower()]


def trace(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A capture, pcap or pcapng; - is stdin.")
    ],
    gaps: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Packets of this sender may have been lost before the capture; repeatable.",
        ),
    ] = None,
    offers: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS", help="This sender may offer extended mode, by HELLO; repeatable."
        ),
    ] = None,
    refusal: Annotated[
        list[str] | None,
        typer.Option(metavar="0x61..0x64", help="A fatal NAK that is expected; repeatable."),
    ] = None,
    cautious: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS", help="This sender's ACKs must not name READs or atomics; repeatable."
        ),
    ] = None,
    fmt: FormatOption = Format.table,
) -> int:
    """Judge every RoCEv2 packet of a capture.

    The capture may begin and end in mid-connection, and must have whole packets. Of connections
    in extended mode only the ICRC and the headers before it are judged. Exit code 1 when a packet
    breaks a rule, 2 when there is none; docs/interop.md lists the rules.

    \b
    tcpdump -i eth1 -s 0 -w cap.pcap udp port 4791
    dpctl trace cap.pcap
    dpctl trace cap.pcap --gaps 10.0.0.2 --offers 10.0.0.1 --refusal 0x62
    """
    from datapath.interop import capture, trace

    refusals = [_syndrome(text) for text in refusal or ()]
    report = trace.check(
        capture.read(file),
        gaps=gaps or (),
        offers=offers or (),
        refusals=refusals,
        cautious=cautious or (),
    )
    if not report.packets:
        raise LocalError(
            f"{file} holds no RoCEv2 packet, so there is nothing to judge",
            hint="capture what the programs send: tcpdump -i DEV -s 0 -w FILE udp port 4791",
        )
    _check_whole(report, file)
    _print_verdict(report, fmt)
    return 1 if report.violations else 0


def _check_whole(report: Report, file: Path) -> None:
    """LocalError when some packets are not there as they were sent: nothing can be judged then."""
    from datapath.interop import capture

    flawed = {rule: [v for v in report.violations if v.rule == rule] for rule in ("cut", "offload")}
    if cut := flawed["cut"]:
        raise LocalError(
            f"{file} has only the beginning of {len(cut)} of {report.packets} RoCEv2 packets "
            f"(packet {cut[0].number}: {cut[0].text}), so it cannot be judged",
            hint="capture whole packets: dpctl capture HOST -w FILE -s 0, or tcpdump -s 0",
        )
    if merged := flawed["offload"]:
        raise capture.offloaded(file, merged[0].number, merged[0].text)


def _print_verdict(report: Report, fmt: Format) -> None:
    """The violations; on stderr the numbers of packets that were checked."""
    columns = ("packet", "flow", "rule", "text")
    rows: list[dict[str, Any]] = [
        {"packet": v.number, "flow": v.flow, "rule": v.rule, "text": v.text}
        for v in report.violations
    ]
    print_rows(rows, columns, fmt)
    print(
        f"{counted(report.packets, 'packet')} of {counted(report.connections, 'connection')}, "
        f"{counted(len(report.violations), 'violation')}",
        file=sys.stderr,
    )
    if report.extended:
        print(
            f"{report.extended} of them are of extended mode, and only their ICRC and the headers "
            "before it are judged; tshark -X lua_script:tools/extended.lua -r FILE decodes them",
            file=sys.stderr,
        )
    if report.unmatched:
        print(
            f"{report.unmatched} of them are judged by their ICRC and headers alone: requests and "
            "answers do not tell which QPs are connected, as the capture is too short, or the "
            "same PSNs pass on several QPs at once",
            file=sys.stderr,
        )
    for sender, counts in sorted(report.coverage.items()):
        seen = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        print(f"{sender} sent {seen}", file=sys.stderr)
