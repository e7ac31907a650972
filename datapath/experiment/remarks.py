# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What to tell of an experiment that is valid, and hardly meant so."""

from __future__ import annotations

from collections.abc import Iterator

from datapath.experiment import signals
from datapath.experiment.load import LoadedExperiment
from datapath.lanes.shape import lacking_headroom


def remarks(experiment: LoadedExperiment) -> list[str]:
    """Each once, whatever the number of points."""
    return [*dict.fromkeys(_headrooms(experiment)), *signals.remarks(experiment)]


def _headrooms(experiment: LoadedExperiment) -> Iterator[str]:
    for point in experiment.points:
        topology, path = point.spec.topology, point.spec.path
        if (needed := lacking_headroom(topology, path)) and topology.lossless is not None:
            yield (
                f"topology.pfc: a headroom of {topology.lossless.headroom} bytes is less than the "
                f"{needed} that can arrive after a pause, by rate, delay and MTU of the links: PFC "
                "may lose packets; without headroom the file has as much as is needed"
            )
