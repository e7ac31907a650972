# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What to tell of an experiment that is valid, and hardly meant so."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf

from datapath.experiment import signals
from datapath.experiment.load import LoadedExperiment
from datapath.lanes.shape import lacking_headroom


def remarks(experiment: LoadedExperiment) -> list[str]:
    """Each once, whatever the number of points."""
    return [*dict.fromkeys(_headrooms(experiment)), *signals.remarks(experiment)]


def _headrooms(experiment: LoadedExperiment) -> Iterator[str]:
    for point in experiment.points:
        topology, path = point.spec.topology, point.spec.path
        needed = lacking_headroom(topology, path)
        if not needed or topology.lossless is None:
            continue
        given = f"topology.pfc: a headroom of {topology.lossless.headroom} bytes is"
        if isinf(needed):
            yield (
                f"{given} not enough for every packet: a jitter of model normal or pareto has no "
                "longest delay: PFC may lose packets"
            )
            continue
        yield (
            f"{given} less than the {needed} that can arrive after a pause, by the settings of the "
            "links and the MTU: PFC may lose packets; without headroom the file has as much as is "
            "needed"
        )
