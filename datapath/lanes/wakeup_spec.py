# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The key `topology.wakeup` of lane sim: how late the programs of its hosts run."""

from __future__ import annotations

import re
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
)

from datapath import foreign
from datapath.fabric.wakeup import MAX_NS, Lateness, Wakeup
from datapath.units import DurationNs

_NAME = re.compile(r"p(\d{1,3}(?:\.\d{1,6})?)")
_NAMED = {"min": "p0", "max": "p100"}
_QUANTILES = {
    "type": "object",
    "patternProperties": {r"^(p\d+(\.\d+)?|min|max)$": {"type": "string"}},
    "additionalProperties": False,
    "minProperties": 1,
}
_KINDS = {"packet", "timer"}

LIVE = "live"
"""As the live run of the same point has measured (experiment/twins.py)."""


def _share(name: str) -> float:
    match = _NAME.fullmatch(_NAMED.get(name, name))
    share = round(float(match[1]) / 100, 9) if match else 2.0
    if share > 1:
        raise ValueError(f"{name} is not a quantile: write p50, p99.9, min or max")
    return share


def _ordered(given: dict[str, int]) -> dict[str, int]:
    """By share."""
    if not given:
        raise ValueError("needs a quantile, such as p50")
    ordered = dict(sorted(given.items(), key=lambda item: _share(item[0])))
    shares = [_share(name) for name in ordered]
    if len(set(shares)) != len(shares):
        raise ValueError("names a quantile twice")
    if list(ordered.values()) != sorted(ordered.values()):
        raise ValueError("a higher quantile is lower than one below it")
    return ordered


def _quantiles_of_constant(value: Any) -> Any:
    return value if isinstance(value, dict) else {"min": value, "max": value}


Quantiles = Annotated[
    dict[str, Annotated[DurationNs, Field(le=MAX_NS)]],
    BeforeValidator(_quantiles_of_constant),
    AfterValidator(_ordered),
    WithJsonSchema({"anyOf": [{"type": "string"}, _QUANTILES]}),
]
"""Quantile -> delay."""


class HostWakeup(BaseModel):
    """How late programs run after they have slept."""

    model_config = ConfigDict(extra="forbid")

    packet: Quantiles = Field(description="After a packet has come.")
    timer: Quantiles = Field(description="After the time at which it wanted to wake.")

    emulator: Quantiles | None = Field(
        None,
        description="Of the program that emulates the link of lane netns: how late it hands frames "
        "over. For the shared link of p2p and dumbbell; other presets have none. Unset: exact.",
    )
    awake: DurationNs = Field(
        0, le=MAX_NS, description="A program is awake, and not late, for so long after it woke."
    )

    def setting(self, spin_ns: int, *, emulated: bool) -> Wakeup:
        """spin_ns: how long a program polls after a completion."""
        return Wakeup(
            _lateness(self.packet),
            _lateness(self.timer),
            _lateness(self.emulator) if emulated and self.emulator is not None else None,
            spin_ns,
            self.awake,
        )


def _lateness(quantiles: dict[str, int]) -> Lateness:
    """From 0 and up to the highest quantile that is given, where min and max are not."""
    points = [(_share(name), ns) for name, ns in quantiles.items()]
    if points[0][0] > 0:
        points.insert(0, (0.0, 0))
    if points[-1][0] < 1:
        points.append((1.0, points[-1][1]))
    return Lateness(tuple(points))


def _wakeup_of_short_form(value: Any, info: ValidationInfo) -> Any:
    """A file, one duration or one list of quantiles stand for both kinds."""
    if value in (None, LIVE) or isinstance(value, HostWakeup):
        return value
    if isinstance(value, str) and "/" in value:
        return _read(value, info)
    if isinstance(value, dict) and _KINDS & set(value):
        return value
    return dict.fromkeys(sorted(_KINDS), value)


def _read(name: str, info: ValidationInfo) -> Any:
    """A file of `dpctl fabric wakeup`; relative to `folder` of the validation context."""
    folder = (info.context or {}).get("folder", "")
    try:
        content = foreign.read_json(FilePath(folder, name))
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read {name}: {error}") from None
    if not isinstance(content, dict) or not set(content) >= _KINDS:
        raise ValueError(f"{name} is not a file that `dpctl fabric wakeup --out` wrote")
    parts = (*sorted(_KINDS), "emulator", "awake")
    return {part: content[part] for part in parts if part in content}


WakeupSetting = Annotated[
    HostWakeup | Literal["live"] | None,
    BeforeValidator(_wakeup_of_short_form),
]
