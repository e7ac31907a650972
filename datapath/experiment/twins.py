# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`topology.wakeup: live`: programs of a simulated run wake as late as those of its live twin.

The live twin of a simulated point is the live point with the same settings otherwise.
Its devices count how late their threads woke, and the emulator how late it handed frames over;
the simulated run takes the distributions that its twin measured in the same repetition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from datapath.lanes.wakeup_spec import LIVE

if TYPE_CHECKING:
    from datapath.experiment.spec import PointSpec
    from datapath.experiment.sweep import Point

_OWN = ("lane", "wakeup", "scheduling", "keep_awake")
"""Keys of the topology in which twins may differ."""


def wants_twin(spec: PointSpec) -> bool:
    return spec.topology.wakeup == LIVE


def twin_of(spec: PointSpec, points: Iterable[Point]) -> Point:
    """The live twin of a simulated point; ValueError with the reason when there is not just one."""
    wanted = _settings(spec)
    found = [
        point
        for point in points
        if not point.spec.topology.of_lane.simulated and _settings(point.spec) == wanted
    ]
    if not found:
        raise ValueError("live: no live point has the same settings otherwise")
    if len(found) > 1:
        raise ValueError(f"live: {found[0].label} and {found[1].label} are both its live twin")
    if found[0].spec.transport.device != "dp":
        raise ValueError("live: only device dp counts how late its programs wake")
    return found[0]


def _settings(spec: PointSpec) -> dict[str, Any]:
    data = spec.model_dump(mode="json")
    data["topology"] = {k: v for k, v in data["topology"].items() if k not in _OWN}
    return data
