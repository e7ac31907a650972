# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Output of the commands about runs and programs that go on."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import with_config
from typing_extensions import TypedDict

from datapath.cli.documents.members import CLOSED, OPEN, means


@with_config(CLOSED)
class OpenRun(TypedDict):
    """An experiment that runs on this machine."""

    pid: int
    experiment: str | None
    lane: str | None
    run: str | None
    point: Any
    done: Any
    hosts: Annotated[list[dict[str, Any]], means("name, kind, addresses and devices of each")]
    folder: str | None


@with_config(CLOSED)
class Program(TypedDict):
    """A program that has devices of ours open."""

    pid: int
    program: str
    devices: list[str]


@with_config(CLOSED)
class Running(TypedDict):
    """A run or a program on this machine."""

    runs: list[OpenRun]
    programs: list[Program]


@with_config(CLOSED)
class TopQp(TypedDict):
    """A QP of a program that runs; rates are those of the last interval."""

    program: str
    pid: int
    qpn: int
    cc: str | None
    goodput_bps: float | None
    rtt_ns: float | None
    cwnd_bytes: float | None
    inflight_bytes: float | None
    retransmitted_packets: int | None
    pacing_rate_bps: Annotated[float | None, means("0: not paced")]
    marked_packets: int | None
    device: str


@with_config(CLOSED)
class TopLink(TypedDict):
    """A link of an experiment that runs."""

    run: Annotated[int, means("PID of the run")]
    link: str
    passed_pps: float | None
    queue_bytes: int | None
    dropped_packets: int
    marked_packets: int


@with_config(CLOSED)
class Top(TypedDict):
    """One sample."""

    seconds: Annotated[float, means("length of the interval")]
    qps: list[TopQp]
    links: list[TopLink]
    silent: Annotated[list[str], means("runs and programs that did not answer, in words")]


@with_config(OPEN)
class Qp(TypedDict):
    """A QP and its algorithm; connected ones have further numbers (dpctl top)."""

    pid: int
    program: str
    device: str
    qpn: int
    cc: str
    params: dict[str, Any]
    object: str
    changes: Annotated[int, means("how often the algorithm was changed")]
