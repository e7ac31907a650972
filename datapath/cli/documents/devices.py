# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Output of the commands about links, kernels, cards and captures."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import with_config
from typing_extensions import TypedDict

from datapath.cli.documents.members import CLOSED, OPEN, means


@with_config(OPEN)
class Accuracy(TypedDict):
    """How exactly a link is emulated; spreads have n, p50, p99 and max."""

    rate_bps: int
    delay_ns: int
    mtu: int
    delay_error: dict[str, float]
    rate_measured_bps: float
    rate_error: Annotated[float, means("measured less asked for, as a share")]
    limit: Annotated[str, means("why a run would not count; empty: it would")]


@with_config(OPEN)
class Wakeup(TypedDict):
    """How late programs wake: what the file of --out has."""

    about: dict[str, Any]


@with_config(CLOSED)
class Kernel(TypedDict):
    """A kernel for guests."""

    release: str
    state: Literal["installed", "available"]
    suite: Literal["own", "backports"]
    siw: NotRequired[Annotated[Literal["yes", "no"], means("whether it has the module siw")]]
    siw_reason: NotRequired[str]
    path: NotRequired[str]
    modules: NotRequired[str]
    siw_path: NotRequired[str | None]


@with_config(OPEN)
class Card(TypedDict):
    """A virtual card, with all its counters (docs/vnic.md) or why it has none."""

    host: str
    state: NotRequired[Annotated[Literal["no card", "no answer"], means("it has no counters")]]
    reason: NotRequired[Annotated[str, means("why it has none")]]
    port: NotRequired[str]
    pid: NotRequired[int]
    hosts: NotRequired[dict[str, Any]]
    tunnels: NotRequired[dict[str, Any]]
    reasons: NotRequired[
        Annotated[
            dict[str, str], means("other host to which there is no tunnel: why, as far as known")
        ]
    ]
    guests: NotRequired[dict[str, Any]]
    waiting: NotRequired[
        Annotated[dict[str, str], means("device of each guest that the card is without: why")]
    ]
    tenants: NotRequired[dict[str, Any]]


@with_config(CLOSED)
class Cell(TypedDict):
    """Our device against rxe, in one combination."""

    port: str
    mtu: Annotated[int, means("path MTU")]
    loss: Annotated[str, means("share of packets lost, each way")]
    role: Annotated[str, means("of our device")]
    result: Literal["green", "RED"]
    messages: int
    verified_bytes: int
    packets: int
    violations: int
    again: Annotated[int, means("packets sent again")]
    naks: int
    rnr: int
    seconds: float


@with_config(CLOSED)
class Violation(TypedDict):
    """A packet that breaks a rule (docs/interop.md)."""

    packet: Annotated[int, means("number in the capture")]
    flow: str
    rule: str
    text: str


@with_config(CLOSED)
class CapturedHost(TypedDict):
    """A host of a table that was made of a capture."""

    number: Annotated[int, means("in the table")]
    address: str


@with_config(CLOSED)
class BpfProgram(TypedDict):
    """A program of a BPF object."""

    name: str
    section: str
    kind: str
    instructions: int
    bytes: int
    fragments: Annotated[bool, means("it takes packets in several pieces")]


@with_config(CLOSED)
class BpfMap(TypedDict):
    """A map of a BPF object."""

    name: str
    type: str
    key_bytes: int
    value_bytes: int
    max_entries: int


@with_config(CLOSED)
class BpfObject(TypedDict):
    """A compiled BPF object."""

    file: str
    file_bytes: int
    byte_order: str
    licence: str
    gpl_compatible: bool
    btf_bytes: int
    line_info: bool
    programs: list[BpfProgram]
    maps: list[BpfMap]
