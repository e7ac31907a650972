# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""tools/conform.py between our device and rxe, in every combination that is asked for.

A cell is green when both programs verified all their data, the trace checker
accepts every packet between them, and all of the opcodes were used.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from datapath import interrupts, strict_json
from datapath.errors import CapabilityError, DatapathError, LocalError, RunFailed
from datapath.interop import capture, trace
from datapath.interop.ground import Facts, Ground
from datapath.interop.opcodes import OPCODES, REQUESTS
from datapath.native import paths
from datapath.units import format_fraction
from datapath.verbs.launch import device_environment

PORTS = ("afxdp", "udp")
MTUS = (1024, 4096)
LOSSES = (0.0, 0.001, 0.01)
ROLES = ("requester", "responder")
"""Of our device."""

_PYTHON = "/usr/bin/python3"  # pyverbs is a package of the system's
_RUN_S = 300.0
_END_S = 25.0
# pyverbs 44 has no call for FLUSH, and the programs post ATOMIC WRITE only when told to.
_NOT_ASKED = ("FLUSH", "ATOMIC WRITE")
_REMOTE_ACCESS = 0x62
_SHOWN = 5
"""Violations that a cell's text tells; the rest is in its folder."""


@dataclass(frozen=True)
class Cell:
    """One combination; role: of our device."""

    port: str
    path_mtu: int
    loss: float
    role: str

    @property
    def name(self) -> str:
        return f"{self.port}-{self.path_mtu}-{self.loss:g}-{self.role}"

    def __str__(self) -> str:
        return f"{self.port}, MTU {self.path_mtu}, loss {format_fraction(self.loss)}, {self.role}"


@dataclass
class Outcome:
    """The result of one cell.  errors: empty when it is green."""

    cell: Cell
    errors: list[str] = field(default_factory=list)
    messages: int = 0
    verified_bytes: int = 0
    packets: int = 0
    retransmissions: int = 0
    naks: int = 0
    rnrs: int = 0
    offers: int = 0
    violations: int = 0
    seconds: float = 0.0
    coverage: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def green(self) -> bool:
        return not self.errors

    def row(self) -> dict[str, Any]:
        """For tables: values as people read them."""
        return {
            "port": self.cell.port,
            "mtu": self.cell.path_mtu,
            "loss": format_fraction(self.cell.loss),
            "role": self.cell.role,
            "result": "green" if self.green else "RED",
            "messages": self.messages,
            "verified_bytes": self.verified_bytes,
            "packets": self.packets,
            "violations": self.violations,
            "again": self.retransmissions,
            "naks": self.naks,
            "rnr": self.rnrs,
            "seconds": self.seconds,
        }


COLUMNS = (
    *("port", "mtu", "loss", "role", "result", "messages", "verified_bytes", "packets"),
    *("violations", "again", "naks", "rnr", "seconds"),
)

_HEADINGS = (
    *("port", "path MTU", "loss, each way", "dp is", "result", "messages", "bytes verified"),
    *("packets judged", "violations", "sent again", "NAKs", "RNR NAKs", "seconds"),
)


def cells(
    ports: Sequence[str], mtus: Sequence[int], losses: Sequence[float], roles: Sequence[str]
) -> list[Cell]:
    """Every combination; LocalError names a value that does not exist."""
    for name, values, known in (("port", ports, PORTS), ("role", roles, ROLES)):
        for value in values:
            if value not in known:
                raise LocalError(f"no {name} {value!r}", hint=f"there are {', '.join(known)}")
    for mtu in mtus:
        if mtu not in (256, 512, 1024, 2048, 4096):
            raise LocalError(f"no path MTU {mtu}", hint="256, 512, 1024, 2048 or 4096")
    return [Cell(*values) for values in itertools.product(ports, mtus, losses, roles)]


def run(
    wanted: Sequence[Cell],
    out: Path,
    *,
    kernel: str = "6.12",
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> tuple[Facts, list[Outcome]]:
    """Boot a guest and run the cells; logs, captures and matrix.json go to `out`.

    A guest that dies costs one cell: another one is booted for the next.
    """
    outcomes: list[Outcome] = []
    facts = None
    out.mkdir(parents=True, exist_ok=True)
    left = list(wanted)
    while left:
        with Ground(kernel, out) as ground:
            facts = ground.facts()
            while left:
                interrupts.check()
                outcome = run_cell(ground, left.pop(0), out)
                outcomes.append(outcome)
                tell(outcome)
                if not outcome.green and not ground.recover():
                    break
    if facts is None:
        raise LocalError("nothing to run", hint="give at least one port, MTU, loss and role")
    document = {"facts": asdict(facts), "cells": [asdict(outcome) for outcome in outcomes]}
    (out / "matrix.json").write_text(strict_json.text(document, indent=1) + "\n")
    return facts, outcomes


def run_cell(ground: Ground, cell: Cell, out: Path) -> Outcome:
    """One cell in a folder of its own below `out`; an error becomes part of the outcome."""
    outcome = Outcome(cell)
    folder = out / cell.name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    started = time.monotonic()
    try:
        ground.set_loss(cell.loss)
        with ground.capture(folder) as pcap:
            reports = list(_programs(ground, cell, folder))
        _judge_programs(outcome, reports)
        _judge_capture(outcome, ground, pcap, reports[0])
    except (DatapathError, subprocess.TimeoutExpired) as error:
        outcome.errors.append(str(error))
    outcome.seconds = round(time.monotonic() - started, 1)
    (folder / "outcome.json").write_text(strict_json.text(asdict(outcome), indent=1) + "\n")
    return outcome


def _tools() -> Path:
    """Folder of conform.py."""
    if not paths.in_source_tree():
        raise CapabilityError(
            "an installed package has no tools/conform.py", hint="call ./dpctl of a source tree"
        )
    return paths.ROOT / "tools"


def _programs(ground: Ground, cell: Cell, folder: Path) -> Iterator[Mapping[str, Any]]:
    """Run both programs; the JSON of ours, then that of the guest's."""
    tools = _tools()
    # Our side listens: it is there long before the guest's Python has started.
    requester = "server" if cell.role == "requester" else "client"
    arguments = ["-m", str(cell.path_mtu), "--requester", requester]
    if cell.loss:
        arguments.append("--lossy")
    environment = {
        **device_environment("dp0", ground.port(cell.port)),
        "DATAPATH_STATS": str((folder / "stats").resolve()),
    }
    ours = ground.dp.popen(
        [_PYTHON, str(tools / "conform.py"), "-d", "dp0", *arguments],
        env=environment,
        stdout=folder / "dp.json",
        stderr=folder / "dp.log",
    )
    theirs = ground.rxe.popen(
        [
            *(_PYTHON, f"{ground.rxe.provide(tools)}/conform.py", "-d", "rxe0", *arguments),
            ground.dp.endpoint.mgmt_ipv4,
        ],
        stdout=folder / "rxe.json",
        stderr=folder / "rxe.log",
    )
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            theirs.wait(_RUN_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            ours.wait(_END_S)
    finally:
        for process in (ours, theirs):
            process.kill()
            process.wait(_END_S)
    for name in ("dp", "rxe"):
        text = (folder / f"{name}.json").read_text()
        if not text:
            said = (folder / f"{name}.log").read_text().strip().splitlines()
            raise RunFailed(f"the program on {name} said nothing: {said[-1] if said else ''}")
        yield json.loads(text)


def _judge_programs(outcome: Outcome, reports: Sequence[Mapping[str, Any]]) -> None:
    for report in reports:
        if not report["ok"]:
            where = ", ".join(f"{key} {value}" for key, value in report["where"].items())
            outcome.errors.append(
                f"{report['device']} ({report['role']}): {where}: {report['error']}"
            )
    # The requester's report has what both sides verified.
    whole = next(report for report in reports if report["role"] == "requester")
    done = whole.get("cases", ())
    outcome.messages = sum(case["messages"] for case in done)
    outcome.verified_bytes = sum(case["verified_bytes"] for case in done)


def _judge_capture(
    outcome: Outcome, ground: Ground, pcap: Path, program: Mapping[str, Any]
) -> None:
    dp, rxe = ground.dp.endpoint.ipv4, ground.rxe.endpoint.ipv4
    report = trace.check(
        capture.read(pcap),
        [trace.Connection.of_program(program)],
        gaps=[rxe] if outcome.cell.loss else [],
        offers=[dp],
        refusals=[_REMOTE_ACCESS],
        cautious=[dp],
    )
    outcome.packets, outcome.violations = report.packets, len(report.violations)
    outcome.retransmissions, outcome.naks = report.retransmissions, report.naks
    outcome.rnrs, outcome.offers = report.rnrs, report.offers
    outcome.coverage = {
        name: dict(sorted(report.coverage[address].items()))
        for name, address in (("dp", dp), ("rxe", rxe))
    }
    outcome.errors += [str(violation) for violation in report.violations]
    requester, responder = ("dp", "rxe") if outcome.cell.role == "requester" else ("rxe", "dp")
    for row in OPCODES.values():
        sender = requester if row.kind in REQUESTS else responder
        if row.name.endswith("INV") and not program["invalidates"]:
            continue  # the responder has no key that a peer may take away
        if row.name in _NOT_ASKED:
            continue
        if row.name not in outcome.coverage[sender]:
            outcome.errors.append(f"{sender} sent no {row.name}")
    if not report.rnrs:
        outcome.errors.append("no RNR NAK, though receives were posted late")


def text_of(outcome: Outcome) -> str:
    """One line, and the first errors."""
    head = f"{outcome.cell}: " + (
        f"green, {outcome.messages} messages, {outcome.verified_bytes} bytes verified, "
        f"{outcome.packets} packets, {outcome.seconds:g} s"
        if outcome.green
        else f"RED, {len(outcome.errors)} errors"
    )
    more = len(outcome.errors) - _SHOWN
    lines = [head, *(f"  {error}" for error in outcome.errors[:_SHOWN])]
    return "\n".join(lines + ([f"  and {more} more"] if more > 0 else []))


def markdown(facts: Facts, outcomes: Sequence[Outcome], command: str) -> str:
    """The table and the coverage, as a page of docs/."""
    import datetime

    day = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    green = sum(outcome.green for outcome in outcomes)
    lines = [
        "# Interoperation with rxe",
        "",
        f"Made by `{command}` on {day}; do not edit. What it means: [interop.md](interop.md).",
        "",
        f"{green} of {len(outcomes)} cells green.",
        f"Our device ran on Linux {facts.kernel}, rxe in a guest with Linux {facts.guest_kernel}.",
        "",
        _row(_HEADINGS),
        _row(["---"] * len(_HEADINGS)),
    ]
    for outcome in outcomes:
        values = [str(outcome.row()[column]) for column in COLUMNS]
        lines.append(_row(values))
    lines += ["", *_coverage(outcomes)]
    return "\n".join(lines) + "\n"


def _row(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"


def _coverage(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "Packets by opcode, of all cells:"
    yield ""
    yield "| opcode | | dp sent | rxe sent |"
    yield "|---|---|---|---|"
    for number, row in OPCODES.items():
        counts = [
            sum(outcome.coverage.get(sender, {}).get(row.name, 0) for outcome in outcomes)
            for sender in ("dp", "rxe")
        ]
        yield f"| {number:#04x} | {row.name} | {counts[0]} | {counts[1]} |"
    offers = sum(outcome.offers for outcome in outcomes)
    yield f"| 0xe0 | HELLO, the offer of extended mode | {offers} | 0 |"
