# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How long an experiment will take: by earlier results of it, or at least by its durations."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from datapath import foreign

if TYPE_CHECKING:
    from datapath.experiment.load import LoadedExperiment
    from datapath.experiment.sweep import Point

_FOLDERS = 5
"""Earlier results that are read, the newest ones."""


@dataclass(frozen=True)
class Estimate:
    """Seconds of all runs.

    source: the newest folder whose runs told; None: the durations in the file told, and the runs
    take longer than that.
    """

    seconds: float
    source: Path | None


def estimate(experiment: LoadedExperiment, results: Path) -> Estimate | None:
    """None: neither earlier results nor durations say anything.

    results: the folder of result folders.
    """
    taken: dict[str, list[float]] = {}
    source = None
    for folder in _earlier(results, experiment.spec.name):
        for point, seconds in _runs(folder):
            taken.setdefault(point, []).append(seconds)
            source = source or folder
    known = {point.key: median(taken[point.key]) for point in experiment.points
             if point.key in taken}  # fmt: skip
    if 2 * len(known) >= len(experiment.points):
        return Estimate(_together(experiment, known, fmean(known.values())), source)
    durations = {point.key: _duration_s(point) for point in experiment.points}
    least = _together(experiment, durations, 0.0)
    return Estimate(least, None) if least else None


def _together(experiment: LoadedExperiment, seconds: dict[str, float], otherwise: float) -> float:
    """Of all runs: live ones in turn, simulated ones on all CPUs at once."""
    cpus = len(os.sched_getaffinity(0))
    each = [
        seconds.get(point.key, otherwise) / (cpus if point.spec.topology.of_lane.simulated else 1)
        for point in experiment.points
    ]
    return experiment.spec.sweep.repetitions * sum(each)


def _duration_s(point: Point) -> float:
    """How long a live workload sends, if the file says so; simulated time says nothing."""
    duration = getattr(point.spec.workload, "duration", None)
    if point.spec.topology.of_lane.simulated or not isinstance(duration, int):
        return 0.0
    return duration / 1e9


def _earlier(results: Path, name: str) -> Sequence[Path]:
    """Result folders of experiments of this name, the newest first."""
    found = [path.parent for path in results.glob(f"{name}-*/manifest.json")]
    return sorted(found, key=lambda folder: folder.name, reverse=True)[:_FOLDERS]


def _runs(folder: Path) -> Iterator[tuple[str, float]]:
    """(point, seconds) of each run that went well; a folder may hold anything."""
    for file in (folder / "runs").glob("*.json"):
        try:
            record: Any = foreign.read_json(file)
        except (OSError, ValueError):
            continue
        if not isinstance(record, dict) or record.get("status") != "ok":
            continue
        point, seconds = record.get("point"), record.get("seconds")
        if isinstance(point, str) and isinstance(seconds, (int, float)) and 0 <= seconds < 1e6:
            yield point, float(seconds)
