# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The `events` section of an experiment: what changes while a run is measured, and when."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from datapath.cc.spec import HostCc
from datapath.lanes.condition_spec import Condition, Names
from datapath.lanes.graph_spec import NODE
from datapath.lanes.spec import ONE_PATH, Path, PathDirection
from datapath.spelling import or_rather
from datapath.units import DurationNs
from datapath.xdp.impair import DIRECTIONS, Direction

_FIXED = ("aqm", "classes", "trim", "telemetry", "ecn_mark")
"""Keys of `path` that cannot change while packets wait, or that lane sim does not have."""
_LINK = rf"^{NODE}(>|--){NODE}$"
_WHAT = ("path", "state", "stop", "start", "cc", "stall")

Hosts = Annotated[
    list[int | str],
    Field(min_length=1),
    BeforeValidator(lambda v: v if isinstance(v, list) else [v]),
]


class Event(BaseModel):
    """One change at a time or on a condition: of the path or a link, of flows or a host."""

    model_config = ConfigDict(extra="forbid")

    at: DurationNs | None = Field(None, description="When: so long after the start of the traffic.")
    when: Condition | None = Field(None, description="In place of at: a condition.")
    label: str = Field("", max_length=40, description="Shown in plots; unset: made from the rest.")
    path: PathDirection | None = Field(
        None,
        description="Keys of `path` that have other values from then on: {rate: 500mbit}. Packets "
        f"that wait stay. All keys but {', '.join(_FIXED)}.",
    )
    state: Literal["down", "up"] | None = Field(
        None, description="down: the link loses every packet. up: as it was before."
    )
    link: str | None = Field(
        None,
        json_schema_extra={"pattern": _LINK},
        description="The link that path and state are about, by the names of nodes: "
        "leaf0>spine1 for one direction, leaf0--spine1 for both. Unset: the path.",
    )
    node: str | None = Field(
        None,
        json_schema_extra={"pattern": rf"^{NODE}$"},
        description="With state: a switch, a host or (preset rail) a server, all of whose links go "
        "down or up.",
    )
    direction: Direction | None = Field(
        None, description="p2p and dumbbell: one direction of the path. Unset: both."
    )
    reroute: DurationNs | None = Field(
        None,
        description="With state, and link or node: how long after the event switches send along "
        "other links, or along these again. Unset: routes stay as they are.",
    )
    stop: Names | None = Field(
        None, description="Groups of flows (workload traffic) that stop sending."
    )
    start: Names | None = Field(None, description="Groups that were stopped and send again.")
    cc: HostCc | None = Field(None, description="Another algorithm for groups of flows.")
    flows: Names | None = Field(None, description="With cc: the groups; unset: all of them.")
    stall: Hosts | None = Field(
        None,
        description="Hosts, by number or name, whose programs stand still for a while; in preset "
        "rail also servers, such as server0: all of its NICs.",
    )
    lasts: DurationNs | None = Field(None, gt=0, description="With stall: how long.")

    @field_validator("link")
    @classmethod
    def _link_is_written_so(cls, value: str | None) -> str | None:
        if value is not None and not re.search(_LINK, value):
            raise ValueError("a link is written a>b, for one direction, or a--b, for both")
        return value

    @model_validator(mode="after")
    def _one_thing(self) -> Event:
        if (self.at is None) == (self.when is None):
            raise ValueError("an event has a time, at, or a condition, when: one of them")
        given = [key for key in _WHAT if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"an event has one of {', '.join(_WHAT)}, not {len(given)} of them")
        about_links = given[0] in ("path", "state")
        if not about_links and (self.link is not None or self.direction is not None):
            raise ValueError("link and direction go with path or state")
        if self.link is not None and self.direction is not None:
            raise ValueError("direction is of the path; a link has its own: leaf0>spine1")
        if self.node is not None and (self.state is None or self.link or self.direction):
            raise ValueError("node goes with state, in place of link and direction")
        if self.reroute is not None and (self.state is None or not (self.link or self.node)):
            raise ValueError("reroute goes with state, and link or node")
        if (self.lasts is None) != (self.stall is None):
            raise ValueError("stall and lasts go together")
        if self.flows is not None and self.cc is None:
            raise ValueError("flows goes with cc")
        if self.path is not None and not self.path_keys:
            raise ValueError("path sets nothing: give it keys, such as {rate: 500mbit}")
        fixed = [key for key in _FIXED if self.path is not None and key in self.path_keys]
        if fixed:
            raise ValueError(f"path.{fixed[0]} cannot change while packets are under way")
        return self

    @property
    def time(self) -> int:
        """When it happens; only of an event with a time."""
        assert self.at is not None
        return self.at

    @property
    def waits_for(self) -> str:
        """Its time or condition, in few words."""
        return self.when.text if self.when is not None else f"{self.time / 1e9:g} s"

    @property
    def path_keys(self) -> dict[str, Any]:
        """The keys of `path` that it sets."""
        if self.path is None:
            return {}
        return {key: value for key, value in self.path if value is not None}

    @property
    def about_links(self) -> bool:
        return self.path is not None or self.state is not None

    @property
    def about_flows(self) -> bool:
        return not self.about_links and self.stall is None

    @property
    def text(self) -> str:
        """What it is, in few words."""
        if self.label:
            return self.label
        place = self.link or self.node or self.direction
        where = " ".join(filter(None, (place, self.state)))
        if self.path is not None:
            written = self.path.model_dump(mode="json", exclude_none=True)
            return " ".join([*filter(None, [where]), *(f"{k} {v}" for k, v in written.items())])
        if self.state is not None:
            return where if place else f"path {self.state}"
        if self.stall is not None:
            return f"stall {', '.join(map(str, self.stall))}"
        if self.cc is not None:
            return f"{', '.join(self.flows or ['all'])}: {self.cc.tcp or self.cc.algo}"
        return (
            f"stop {', '.join(self.stop)}" if self.stop else f"start {', '.join(self.start or [])}"
        )


def stalls(events: Sequence[Event], names: Sequence[str]) -> list[tuple[int, int, int]]:
    """(at, number of a host, how long) of the hosts that stand still; ValueError for a stranger."""
    found = []
    for event in events:
        for host in event.stall or []:
            if isinstance(host, int):
                numbers = [host] if 0 <= host < len(names) else []
            else:
                numbers = numbers_of(host, names)
            if not numbers:
                raise ValueError(f"there is no host {host}{or_rather(str(host), names, 'hosts')}")
            found += [(event.at or 0, number, event.lasts or 0) for number in numbers]
    return sorted(found)


def numbers_of(name: str, names: Sequence[str]) -> list[int]:
    """Which of the names it is, or those of all NICs of a server (preset rail); []: none."""
    if name in names:
        return [names.index(name)]
    return [number for number, other in enumerate(names) if other.startswith(f"{name}-nic")]


def check_events(events: Sequence[Event], path: Path, preset: str) -> None:
    """ValueError for events that make no sense with a path and a preset."""
    pairs = preset in ONE_PATH
    for event in events:
        if event.state == "up" and not any(other.state == "down" for other in events):
            raise ValueError(
                "nothing is down before an event takes it up: add one with state: down"
            )
        if (event.link is not None or event.node is not None) and pairs:
            raise ValueError(f"preset {preset} has one path: give direction, and no link or node")
        if event.direction is not None and not pairs:
            raise ValueError(f"preset {preset} has no directions: name a link, such as a>b")
        if event.state is not None and not (event.link or event.node) and not pairs:
            raise ValueError(
                f"preset {preset} has many links: name the link or node that is {event.state}"
            )
    if pairs and any(event.about_links for event in events) and path.carrier != "fabric":
        raise ValueError("events of the path need a link model; set path: {backend: fabric}")
    for event in events:
        if event.when is not None:
            _check_condition(event, events, path, pairs=pairs)
    if pairs:
        list(path_changes(events, path))


def _check_condition(event: Event, events: Sequence[Event], path: Path, *, pairs: bool) -> None:
    """ValueError for a condition that makes no sense here."""
    when = event.when
    assert when is not None
    if when.event is not None and when.event == event.label:
        raise ValueError(f"the event {event.label!r} waits for itself")
    labels = [other.label for other in events if other.label]
    if when.event is not None and labels.count(when.event) != 1:
        several = "several events have" if when.event in labels else "no event has"
        raise ValueError(
            f"{several} the label {when.event!r}{or_rather(when.event, labels, 'labels')}"
        )
    if when.queue is None:
        return
    if pairs and when.link is not None:
        raise ValueError("the path of this preset is one: give direction, and no link")
    if not pairs and when.link is None:
        raise ValueError("this preset has many queues: name a link, such as leaf0>spine1")
    if pairs and path.carrier != "fabric":
        raise ValueError("the queue of the path needs a link model; set path: {backend: fabric}")


def path_changes(events: Sequence[Event], path: Path) -> Iterator[tuple[int, Path]]:
    """The path after each event that is about all of it, in order of time: (ns, section).

    Events that have no time yet come first.
    ValueError for keys that exclude each other.
    """
    now, down = path, set[Direction]()
    for event in sorted(events, key=lambda one: one.at or 0):
        if not event.about_links or event.link is not None or event.node is not None:
            continue
        ways = DIRECTIONS if event.direction is None else (event.direction,)
        if event.state == "down":
            down |= set(ways)
        elif event.state == "up":
            down -= set(ways)
        for way in ways:
            now = _with_keys(now, way, event.path_keys)
        yield event.at or 0, _with_losses(now, down)


def _with_losses(path: Path, down: set[Direction]) -> Path:
    for way in sorted(down):
        path = _with_keys(path, way, {"loss": "100%"})
    return path


def _with_keys(path: Path, way: Direction, keys: dict[str, Any]) -> Path:
    before = getattr(path, way)
    given = {} if before is None else {key: value for key, value in before if value is not None}
    if "rate" in keys or "trace" in keys:
        given = {key: value for key, value in given.items() if key not in ("rate", "trace")}
    everything = {key: value for key, value in path if key in path.model_fields_set}
    return Path.model_validate(everything | {way: PathDirection.model_validate(given | keys)})
