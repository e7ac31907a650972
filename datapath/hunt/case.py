# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A case as an experiment file, which `dpctl run` replays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from datapath.errors import LocalError
from datapath.experiment.store import to_yaml
from datapath.hunt.limits import Limit, possible_bps
from datapath.hunt.space import SPACE, Case, Scale
from datapath.units import format_duration_ns

VARIED_NEVER = ("transport.", "path.ecn", "path.trim", "path.telemetry")
"""Beginnings of the paths that may be set for all cases."""

_MS = 1_000_000
_SHORT_NS, _SHORTEST_NS = 200 * _MS, 50 * _MS
_RTTS, _RTTS_MIN = 300, 100
_PACKETS_OF_FLOW = 300
_PACKETS_MAX = 150_000
_SAMPLES = 400
_INTERVAL_MIN_NS, _INTERVAL_MAX_NS = 100_000, 10**10
_MESSAGES = 100
_MESSAGE_MIN, _MESSAGE_MAX = 2**10, 2**16
_DEPTH_MAX = 8192
_TIMEOUT = "60s"


@dataclass(frozen=True)
class Setup:
    """The settings of all cases of a hunt.

    algorithm, params: as the section `cc` has them; a file of the user's own with its absolute
    path.  settings: dotted path -> value, for all cases.  seed: of the experiments.
    """

    algorithm: str
    params: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 1

    def __post_init__(self) -> None:
        for path in self.settings:
            if not path.startswith(VARIED_NEVER):
                raise LocalError(
                    f"{path} cannot be the same for all cases",
                    hint=f"these can: {', '.join(VARIED_NEVER)}",
                )

    def scale(self, case: Case) -> Scale:
        transport = {
            path.removeprefix("transport."): value
            for path, value in self.settings.items()
            if path.startswith("transport.") and path.count(".") == 1
        }
        return Scale(case, transport)


def document(case: Case, setup: Setup, repetitions: int = 1) -> dict[str, Any]:
    """The experiment of a case as plain data, without name and claims."""
    at = setup.scale(case)
    data: dict[str, Any] = {
        "version": 1,
        "name": "hunt",
        "seed": setup.seed,
        "topology": {"lane": "sim", "preset": "dumbbell", "hosts": 2 * at.pairs},
        "path": {},
        "transport": {"device": "dp"},
        "cc": {"algo": setup.algorithm, "params": dict(setup.params)},
        **_workload(at),
        "sweep": {"repetitions": repetitions, "timeout": _TIMEOUT},
    }
    for dimension in SPACE:
        value = at.value(dimension.name)
        if value is not None:
            for path, setting in dimension.sets(value, at).items():
                _put(data, path, setting)
    for path, setting in setup.settings.items():
        _put(data, path, setting)
    return data


def text(
    case: Case,
    setup: Setup,
    repetitions: int = 1,
    *,
    name: str = "",
    description: str = "",
    limits: Sequence[Limit] = (),
) -> str:
    """The experiment as a file; limits become claims, which fail as long as the case is bad."""
    data = document(case, setup, repetitions)
    data["path"] = {
        key: _in_one_line(value) if key == "trace" else value for key, value in data["path"].items()
    }
    if name:
        data["name"] = name
    if description:
        data["description"] = description
    if limits:
        data["report"] = {"expect": [limit.claim() for limit in limits]}
    return to_yaml(data).decode()


def _workload(at: Scale) -> dict[str, Any]:
    """The sections workload and collect."""
    lasts = duration_ns(at)
    if at.incast:
        workload = {"kind": "incast", "senders": at.pairs, "size": at.incast, "rounds": 1}
        lasts = round(at.flows * at.incast * 8e9 / at.rate_bps)
    else:
        size = _message_bytes(at, lasts)
        window = at.window * at.framing.payload
        outstanding = min(2 * (at.bdp_bytes + at.queue_bytes), window)
        depth = min(max(math.ceil(outstanding / size) + 1, 2), _DEPTH_MAX)
        duration = format_duration_ns(lasts)
        workload = {"kind": "stream", "size": size, "depth": depth, "duration": duration}
    interval = min(max(lasts // _SAMPLES // 1000 * 1000, _INTERVAL_MIN_NS), _INTERVAL_MAX_NS)
    series = ["rtt", "inflight", "delivered", "retransmits"]
    collect = {"series": series, "interval": format_duration_ns(interval), "qps": 2 * at.flows}
    return {"workload": workload, "collect": collect}


def duration_ns(at: Scale) -> int:
    """Long enough to judge, short enough for hundreds of cases in a minute."""
    wanted = max(_SHORT_NS, _RTTS * at.rtt_ns, at.flows * _PACKETS_OF_FLOW * at.packet_ns)
    least = max(_SHORTEST_NS, _RTTS_MIN * at.rtt_ns)
    return round(max(min(wanted, _PACKETS_MAX * at.packet_ns), least)) // 1000 * 1000


def _message_bytes(at: Scale, lasts_ns: int) -> int:
    """A power of two, so small that each flow completes many of them on a bad path."""
    share = possible_bps(at) * lasts_ns / 8e9 / at.flows / _MESSAGES
    return 1 << int(math.log2(min(max(share, _MESSAGE_MIN), _MESSAGE_MAX)))


def _put(data: dict[str, Any], path: str, value: Any) -> None:
    *outer, last = path.split(".")
    for step in outer:
        data = data.setdefault(step, {})
    if value is None:
        data.pop(last, None)
    else:
        data[last] = value


def _in_one_line(numbers: Sequence[int]) -> Any:
    from ruamel.yaml.comments import CommentedSeq

    listed = CommentedSeq(numbers)
    listed.fa.set_flow_style()
    return listed
