# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Output of the commands about algorithms and collectives."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import with_config
from typing_extensions import TypedDict

from datapath.cli.documents.members import CLOSED, OPEN, means


@with_config(CLOSED)
class Algorithm(TypedDict):
    """A congestion-control algorithm."""

    name: str
    key: Annotated[Literal["cc.algo", "cc.tcp"], means("key of an experiment file that takes it")]
    summary: str
    source: str


@with_config(CLOSED)
class Parameter(TypedDict):
    """A parameter of an algorithm."""

    parameter: str
    default: Any
    unit: str
    range: str
    meaning: str


@with_config(CLOSED)
class AlgorithmDetail(TypedDict):
    """An algorithm; those for the kernel's TCP have the first four members alone."""

    name: str
    source: str
    file: str
    doc: str
    flow_bytes: NotRequired[Annotated[int, means("size of its record")]]
    params: NotRequired[list[Parameter]]
    state: NotRequired[list[str]]
    grants: NotRequired[Annotated[bool, means("it has hooks at the receiver")]]
    receiver_state: NotRequired[dict[str, str]]


@with_config(CLOSED)
class Checked(TypedDict):
    """An algorithm that kept its bounds."""

    algorithm: str
    events: int
    doubts: Annotated[list[str], means("what is within bounds and hardly meant")]


@with_config(CLOSED)
class Compiled(TypedDict):
    """A compiled algorithm."""

    algorithm: str
    path: Annotated[str, means("of the shared object")]


@with_config(CLOSED)
class Changed(TypedDict):
    """An algorithm that was set on QPs of a program."""

    algorithm: str
    pid: int
    qps: int


@with_config(CLOSED)
class HuntFinding(TypedDict):
    """A network in which an algorithm does badly; or, with --dimensions, a Dimension."""

    file: str
    symptom: str
    score: float
    cause: str
    case: dict[str, Any]
    runs: int
    metric: str
    measured: float | None
    min: float | None
    max: float | None
    error: str
    cases: int
    worst_score: float
    minimal: bool


@with_config(CLOSED)
class Dimension(TypedDict):
    """A dimension that a hunt varies."""

    dimension: str
    meaning: str
    default: str


@with_config(CLOSED)
class Collective(TypedDict):
    """An algorithm of a collective."""

    name: str
    collective: str
    summary: str
    parameters: str


@with_config(CLOSED)
class Proved(TypedDict):
    """Plans of an algorithm that were proved."""

    algorithm: str
    plans: Annotated[list[dict[str, int]], means("ranks and steps of each")]
    refused: Annotated[
        str, means("why there is no plan for other numbers of ranks; empty: there is")
    ]


@with_config(OPEN)
class Step(TypedDict):
    """A step of a plan (docs/collectives.md)."""

    rank: int
    step: int


@with_config(OPEN)
class Choice(TypedDict):
    """The algorithm for a size; a member ALGORITHM_ms for each that was measured."""

    size: int
    algorithm: str


@with_config(OPEN)
class SlowLink(TypedDict):
    """Transfers of a live collective between two ranks, beside simulated ones."""

    run: str
    transfers: int
    live_ms: float
    simulated_ms: float
    factor: float
    verdict: str


@with_config(CLOSED)
class NcclCase(TypedDict):
    """A case that a plug-in of NCCL has to pass."""

    case: str
    summary: str


@with_config(CLOSED)
class NcclVerdict(TypedDict):
    """A case with one version of NCCL's interface."""

    case: str
    interface: Annotated[int, means("version of the interface of plug-ins")]
    result: Literal["right", "wrong"]
    wrong: Annotated[str, means("what is wrong; empty: nothing")]
