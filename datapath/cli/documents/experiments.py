# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Output of the commands about this machine, experiments and results."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import with_config
from typing_extensions import TypedDict

from datapath.cli.documents.members import CLOSED, OPEN, means


@with_config(CLOSED)
class Finding(TypedDict):
    """One thing that `dpctl doctor` looked at."""

    about: Annotated[str, means("what was looked at")]
    state: Annotated[
        Literal["good", "slow", "lacks", "told"],
        means(
            "slow: works, but measures worse; lacks: something does not work; told: no judgement"
        ),
    ]
    found: Annotated[str, means("in words")]
    mend: Annotated[str, means("the command that mends it, or what to do; empty: nothing")]


@with_config(CLOSED)
class Listed(TypedDict):
    """An experiment of experiments/, or a folder of results/: of a run, or of a comparison."""

    experiment: NotRequired[Annotated[str, means("path of the file")]]
    valid: NotRequired[bool]
    points: NotRequired[int]
    description: NotRequired[str]
    result: NotRequired[Annotated[str, means("path of the folder")]]
    state: NotRequired[Literal["complete", "partial"]]
    runs: NotRequired[Annotated[int | str, means("of a file: planned; of a folder: DONE/PLANNED")]]
    failed: NotRequired[Annotated[int, means("runs without a valid result")]]
    claims: NotRequired[Annotated[str, means("how many claims hold; empty: none were judged")]]
    started: NotRequired[Annotated[str | None, means("UTC, ISO 8601")]]
    comparison: NotRequired[Annotated[str, means("path of the folder of dpctl compare")]]
    blocks: NotRequired[Annotated[str, means("that both revisions have run: DONE/PLANNED")]]
    revisions: NotRequired[Annotated[list[str], means("the two that are compared")]]


@with_config(CLOSED)
class Problem(TypedDict):
    """A mistake in an experiment file."""

    file: str
    line: int
    column: int
    path: Annotated[str, means("of the key, such as path.loss")]
    message: str


@with_config(OPEN)
class Planned(TypedDict):
    """A point of a sweep; a member for each axis has its value."""

    point: Annotated[str, means("key of the point, a digest of its settings")]
    workload: Annotated[str, means("kind of the workload")]
    spec: Annotated[dict[str, Any], means("all settings of the point, as dpctl schema has them")]


@with_config(CLOSED)
class Ran(TypedDict):
    """A run of an experiment."""

    folder: str
    report: Annotated[str | None, means("path of report.html; null: none was made")]
    runs: int
    failed_runs: int
    claims: Annotated[list[dict[str, Any]], means("as in claims.json, see docs/results.md")]


@with_config(CLOSED)
class Shown(TypedDict):
    """The answer of a result folder."""

    name: str
    baseline: Annotated[dict[str, list[str]], means("axis values that ratios are held to")]
    claims: Annotated[list[dict[str, Any]], means("as in claims.json, see docs/results.md")]
    points: Annotated[
        list[dict[str, Any]],
        means("of each point and metric: axes, metric, unit, n, median, min, max, lo, hi"),
    ]
    ratios: Annotated[
        list[dict[str, Any]], means("of each point and metric: axes, metric, n, ratio, lo, hi")
    ]
    failures: list[dict[str, Any]]
    remarks: list[dict[str, str]]


@with_config(OPEN)
class Compared(TypedDict):
    """A point of a folder held against the same point of the first; a member for each axis."""

    folder: Annotated[int, means("number of the folder, from 1; the first is 0")]
    metric: str
    unit: str
    n: int
    base_n: int
    median: float
    base_median: float
    ratio: Annotated[float | None, means("null where the first folder has 0")]
    lo: Annotated[float | None, means("low end of the ratio's 95 % interval")]
    hi: float | None
    p: Annotated[float, means("how likely it is by chance, adjusted for the points of the table")]
    verdict: Literal["better", "worse", "differs", "no difference shown", "too few"]


@with_config(CLOSED)
class Comparison(TypedDict):
    """Result folders, or revisions, side by side."""

    folders: NotRequired[list[str]]
    revisions: NotRequired[list[str]]
    remarks: list[str]
    comparisons: list[Compared]


@with_config(CLOSED)
class Made(TypedDict):
    """A report that was made."""

    report: str
    plots: list[str]


@with_config(OPEN)
class Series(TypedDict):
    """A run that has series; a member for each axis."""

    run: Annotated[str, means("POINT-REPETITION")]
    rows: int | None
    left_out: int | None
    absent: Annotated[str, means("series that were asked for and could not be had")]


@with_config(OPEN)
class Sampled(TypedDict):
    """A moment of a flow, link or tunnel; further members as docs/results.md has the columns."""

    run: Annotated[str, means("POINT-REPETITION")]
    time_ns: int
    host: str | None
    qp: float | None
    link: str | None
    tunnel: str | None


@with_config(CLOSED)
class Cleaned(TypedDict):
    """The remains of a dead run, or an old result folder."""

    what: Literal["process", "folder"]
    pid: NotRequired[int]
    path: NotRequired[str]
