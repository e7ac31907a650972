# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Groups of flows: what an experiment file says of them, and their rows of the traffic table."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from datapath.cc.spec import HostCc
from datapath.errors import LocalError
from datapath.spelling import or_rather
from datapath.units import BitRate, Bytes, DurationNs, Fraction
from datapath.workloads.traffic.sizes import Sizes, SizesName, named

if TYPE_CHECKING:
    from datapath.fabric.flows import Flows
    from datapath.workloads.traffic.qps import QpNumbers

_HOSTS_MAX = 65536
_RANGE = re.compile(r"(\d{1,5})-(\d{1,5})")
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,31}")
FOR_EVER_NS = 2**62
"""Behind every end of a group."""
_SIZES_STREAM = 8
"""Beside the random streams of schedules.py."""


def _hosts(value: Any) -> Any:
    """A number, a name, a range such as "0-31", or a list of these, as a list."""
    if isinstance(value, list):
        return [host for item in value for host in _hosts(item)]
    if isinstance(value, str) and (match := _RANGE.fullmatch(value)):
        first, last = map(int, match.groups())
        if first > last or last >= _HOSTS_MAX:
            raise ValueError(f"{value!r}: a range of hosts rises, and ends below {_HOSTS_MAX}")
        return list(range(first, last + 1))
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _HOSTS_MAX:
        return [value]
    if isinstance(value, str) and _NAME.fullmatch(value):
        return [value]
    raise ValueError(f"{value!r} is not a host: a number, a name, or a range such as 0-31")


_ONE = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
Hosts = Annotated[
    list[int | str],
    Field(min_length=1),
    BeforeValidator(_hosts),
    WithJsonSchema({"anyOf": [*_ONE["anyOf"], {"type": "array", "items": _ONE}]}),
]
"""Hosts by their numbers, from 0, or by their names."""


class FlowGroup(BaseModel):
    """Flows that are alike.

    They send messages of `size` without end (a closed loop, `depth` of them outstanding), or a
    number of `bytes`, or at a `rate`; or flows of drawn sizes begin at drawn times.
    """

    model_config = ConfigDict(extra="forbid", serialize_by_alias=True)

    name: str = Field(
        "",
        pattern=r"^[A-Za-z0-9_.-]{0,32}$",
        description="By which events name the group; unset: flows0, flows1 ...",
    )
    source: Hosts = Field(
        alias="from",
        description='Sending hosts: a number, a range such as "0-31", a name (of preset graph), '
        "or a list.",
    )
    to: Hosts = Field(
        description="Receiving hosts: one for all, or as many as there are senders, or several "
        "for one sender. With distribution: each flow has one of them, evenly chosen."
    )
    count: int = Field(
        1, ge=1, le=1024, description="Flows of each pair of hosts, each on a QP of its own."
    )
    size: Bytes = Field(65536, ge=1, le=2**30, description="Bytes of each message.")
    depth: int = Field(16, ge=1, le=8192, description="Messages outstanding of each flow.")
    bytes: Bytes | None = Field(None, ge=1, description="What each flow sends, and then ends.")
    rate: BitRate | None = Field(
        None,
        ge=1000,
        description="Payload that each flow offers, in messages that begin at equal intervals, "
        "however long they take. With distribution: that each sender offers on average.",
    )
    distribution: SizesName | None = Field(
        None,
        description="Flows of drawn sizes begin at drawn times (Poisson): websearch, fb_hadoop, "
        "alistorage2019, a file of your own with a / in its name, or one size for all: 64KiB.",
    )
    load: Fraction | None = Field(
        None, gt=0, description="With distribution, in place of rate: share of the link's rate."
    )
    qps: int | None = Field(
        None, ge=1, le=1024, description="With distribution: QPs of each pair, taken in turn (8)."
    )
    start: DurationNs = Field(0, description="When its flows begin.")
    stop: DurationNs | None = Field(
        None,
        description="When they end; flows of a number of bytes that have begun are completed. "
        "Unset: at `duration`.",
    )
    after: str | None = Field(
        None,
        description="With bytes: a group before this one, with bytes. Each flow begins when the "
        "flow in its place there has ended; if there is one flow, all wait for it.",
    )
    stagger: DurationNs = Field(0, description="Each flow begins so long after the one before it.")
    repeat: int = Field(1, ge=1, le=100_000, description="How often, from start to stop.")
    every: DurationNs | None = Field(
        None, gt=0, description="With repeat: from one start to the next."
    )
    dscp: int = Field(
        0,
        ge=0,
        le=63,
        description="DSCP of the packets, both ways: path.classes says which queues take them.",
    )
    cc: HostCc | None = Field(
        None,
        description="Congestion control of these flows; unset: that of the file. TCP has {tcp: "
        "NAME}, of an algorithm that the kernel knows.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> FlowGroup:
        drawn = self.distribution is not None
        if drawn and (self.bytes is not None or self.count != 1 or self.stagger):
            raise ValueError("distribution draws flows: give no bytes, count or stagger beside it")
        if drawn and (self.rate is None) == (self.load is None):
            raise ValueError("distribution needs rate or load, and not both")
        if not drawn and (self.load is not None or self.qps is not None):
            raise ValueError("load and qps: only with distribution")
        if not drawn and self.bytes is not None and self.rate is not None:
            raise ValueError("give bytes or rate, not both")
        if self.after is not None and (drawn or self.bytes is None):
            raise ValueError("after: only for flows of a number of bytes")
        if self.repeat > 1 and self.every is None:
            raise ValueError("repeat needs every, the time from one start to the next")
        if self.stop is not None and self.stop <= self.start:
            raise ValueError("stop is not after start")
        if not drawn:
            self._paired()
        return self

    def number_hosts(self, names: Sequence[str]) -> None:
        """Put numbers in place of names; ValueError for a host that is not there."""
        numbers = {name: index for index, name in enumerate(names)}

        def number(host: int | str) -> int:
            if isinstance(host, str) and host not in numbers:
                raise ValueError(f"there is no host {host}{or_rather(host, names[:64], 'hosts')}")
            if isinstance(host, int) and host >= len(names):
                raise ValueError(f"there is no host {host}, only 0 to {len(names) - 1}")
            return numbers[host] if isinstance(host, str) else host

        self.source = [number(host) for host in self.source]
        self.to = [number(host) for host in self.to]
        if self.distribution is None:
            self._paired()

    @property
    def senders(self) -> list[int]:
        return [int(host) for host in self.source]

    @property
    def receivers(self) -> list[int]:
        return [int(host) for host in self.to]

    @property
    def file(self) -> str | None:
        """The file of a distribution of the user's own, as written."""
        return self.distribution if self.distribution and "/" in self.distribution else None

    @property
    def is_finite(self) -> bool:
        """Whether each of its flows has a number of bytes."""
        return self.bytes is not None or self.rate is not None or self.distribution is not None

    @property
    def is_begun_anew(self) -> bool:
        """Whether a start behind a stop begins its flows anew; others go on where they are."""
        of_times = self.rate is not None or self.distribution is not None or self.repeat > 1
        return not of_times and self.after is None

    @property
    def qps_of_pair(self) -> int:
        """QPs of a pair of hosts, for each time that it is named."""
        return self.count if self.distribution is None else self.qps or 8

    def pairs(self) -> list[tuple[int, int]]:
        """(source, destination) of its flows."""
        return [(int(source), int(target)) for source, target in self._paired()]

    def _paired(self) -> list[tuple[int | str, int | str]]:
        """Senders with receivers; ValueError when they make no sense."""
        sources, targets = self.source, self.to
        if len(targets) == 1:
            targets = targets * len(sources)
        elif len(sources) == 1:
            sources = sources * len(targets)
        if len(sources) != len(targets):
            raise ValueError(
                f"{len(sources)} senders and {len(targets)} receivers: give one receiver, one "
                "sender, or as many of both"
            )
        pairs = list(zip(sources, targets, strict=True))
        for source, target in pairs:
            if source == target:
                raise ValueError(f"host {source} would send to itself")
        return pairs


# --- when a group sends -------------------------------------------------------------------------


@dataclass(frozen=True)
class Phase:
    """A time in which a group sends, ns, with one algorithm.

    cc: as column `cc` of the table.  begins: flows begin with it; otherwise those before it go on.
    """

    begin_ns: int
    end_ns: int
    cc: int = 0
    begins: bool = True


def end_of(group: FlowGroup, duration_ns: int) -> int:
    """When a group ends, with all its repeats."""
    stop = duration_ns if group.stop is None else group.stop
    return stop + (group.repeat - 1) * (group.every or 0)


def phases(group: FlowGroup, duration_ns: int, cc: int) -> list[Phase]:
    """The phases of a group, in order of time; flows without `stop` end at duration_ns."""
    stop = duration_ns if group.stop is None else group.stop
    every = group.every or 0
    starts = [group.start + index * every for index in range(group.repeat)]
    return [Phase(at, at + stop - group.start, cc) for at in starts]


def most_flows(group: FlowGroup, duration_ns: int) -> int:
    """That the group can have; of drawn ones as many as are expected, or 0 if a run alone knows."""
    if group.distribution is not None:
        return _expected_flows(group, duration_ns)
    each = 1
    if group.rate is not None:
        stop = duration_ns if group.stop is None else group.stop
        each = math.ceil((stop - group.start) * group.rate / (group.size * 8e9))
    return len(group.pairs()) * group.count * group.repeat * each


def _expected_flows(group: FlowGroup, duration_ns: int) -> int:
    if group.rate is None or group.distribution is None or group.file is not None:
        return 0
    to = set(group.receivers)
    senders = {one for one in group.senders if len(to) > 1 or one not in to}
    offered_bytes = (end_of(group, duration_ns) - group.start) * group.rate / 8e9
    mean_bytes = named(group.distribution, Path()).mean_bytes
    return math.ceil(len(senders) * offered_bytes / mean_bytes)


# --- rows ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawing:
    """The input for flows of drawn sizes.  rates_bps: of each host, if it sends; payload."""

    sizes: Sizes
    rates_bps: Sequence[float]
    hosts: int
    seed: int


def rows(group: FlowGroup, when: Sequence[Phase], numbers: QpNumbers) -> Flows:
    """The flows of a group that draws nothing, ordered; tag: the phase that a flow began in.

    numbers: of the QPs that pairs of hosts have in the groups before.
    """
    import numpy as np

    from datapath.fabric import flows as table

    parts = []
    flows = list(numbers.of_each(group.pairs(), group.count))
    if group.rate is not None:
        gap_ns = group.size * 8e9 / group.rate
        flows_starts = _paced(when, gap_ns, len(flows))
    else:
        flows_starts = [_begun(group, when, index) for index in range(len(flows))]
    for ((source, target), qp), (starts, of_phase) in zip(flows, flows_starts, strict=True):
        part = table.empty(len(starts))
        part["start_ns"], part["src"], part["dst"], part["qp"] = starts, source, target, qp
        part["tag"] = of_phase
        part["cc"] = np.array([phase.cc for phase in when], np.uint32)[of_phase]
        part["depth"], part["message_bytes"] = group.depth, group.size
        part["dscp"] = group.dscp
        part["bytes"] = group.bytes or group.size
        if not group.is_finite:
            part["bytes"] = table.UNTIL_STOP
            part["stop_ns"] = np.array([phase.end_ns for phase in when], np.uint64)[of_phase]
        parts.append(part)
    return table.join(parts)


def _begun(group: FlowGroup, when: Sequence[Phase], index: int) -> tuple[Any, Any]:
    """(starts, phases) of one flow that begins with each phase, or goes on into it."""
    import numpy as np

    starts, of_phase = [], []
    late = index * group.stagger
    begin = 0
    for number, phase in enumerate(when):
        begin = phase.begin_ns + late if phase.begins else begin
        start = begin if group.is_finite else max(begin, phase.begin_ns)
        if phase.begin_ns <= start < phase.end_ns:
            starts.append(start)
            of_phase.append(number)
    return np.array(starts, np.uint64), np.array(of_phase, np.int64)


def _paced(when: Sequence[Phase], gap_ns: float, flows: int) -> list[tuple[Any, Any]]:
    """(starts, phases) of the messages of each flow; the flows take turns within a gap."""
    import numpy as np

    found = []
    for index in range(flows):
        starts, of_phase = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
        for number, phase in enumerate(when):
            first = phase.begin_ns + gap_ns * index / flows
            each = np.arange(first, phase.end_ns, gap_ns).astype(np.uint64)
            starts.append(each)
            of_phase.append(np.full(len(each), number))
        found.append((np.concatenate(starts), np.concatenate(of_phase)))
    return found


def with_held(part: Flows, times: int) -> Flows:
    """The rows of a group, and as often once more, held; each of them has a tag of its own."""
    import numpy as np

    again = []
    for number in range(1, times + 1):
        more = part.copy()
        more["held"], more["tag"] = 1, more["tag"] + number
        again.append(more)
    return np.concatenate([part, *again])


def drawn_rows(
    group: FlowGroup, when: Sequence[Phase], numbers: QpNumbers, drawing: Drawing
) -> Flows:
    """The flows of a group with a distribution, ordered; tag: the phase that a flow began in."""
    import numpy as np

    from datapath.workloads.traffic import schedules

    begin, end = when[0].begin_ns, max(phase.end_ns for phase in when)
    senders, receivers = set(group.senders), np.array(group.receivers)
    flows = schedules.poisson(
        drawing.sizes,
        hosts=drawing.hosts,
        load=1.0,
        rates_bps=drawing.rates_bps,
        duration_ns=end - begin,
        seed=drawing.seed,
        qps=group.qps_of_pair,
        destinations=lambda host: receivers[(receivers != host) & (host in senders)],
    )
    flows["start_ns"] += np.uint64(begin)
    flows["message_bytes"] = np.minimum(flows["bytes"], group.size)
    flows["depth"], flows["dscp"] = group.depth, group.dscp
    flows["qp"] += numbers.next(flows["src"], flows["dst"])
    of_phase = np.full(len(flows), -1)
    for number, phase in enumerate(when):
        within = (flows["start_ns"] >= phase.begin_ns) & (flows["start_ns"] < phase.end_ns)
        of_phase[within] = number
    flows, of_phase = flows[of_phase >= 0], of_phase[of_phase >= 0]
    flows["tag"] = of_phase
    flows["cc"] = np.array([phase.cc for phase in when], np.uint32)[of_phase]
    return flows


def wait(waiting: Flows, others: Flows, first: int, names: tuple[str, str]) -> None:
    """Lets each flow of a group wait for the flow in its place in another one, or for its only one.

    first: row of the first of the others.  names: of the group and the other one.
    """
    import numpy as np

    if len(others) not in (1, len(waiting)):
        raise LocalError(
            f"{names[0]} has {len(waiting)} flows and waits for {len(others)} of {names[1]}",
            hint="a group waits for one flow, or for as many as it has",
        )
    place = np.arange(len(waiting)) % len(others)
    waiting["after"] = first + place + 1
    waiting["start_ns"] = np.maximum(waiting["start_ns"], others["start_ns"][place])


def group_seed(seed: int, index: int) -> int:
    """Of the random streams of group `index`."""
    from datapath.workloads.traffic import schedules

    return int(schedules.generator(seed, _SIZES_STREAM, index).integers(2**63))


def without(when: Sequence[Phase], begin_ns: int, end_ns: int) -> list[Phase]:
    """The phases less a time in which the group does not send; what is behind it begins anew."""
    left = []
    for phase in when:
        if phase.begin_ns < min(begin_ns, phase.end_ns):
            left.append(replace(phase, end_ns=min(phase.end_ns, begin_ns)))
        if phase.end_ns > max(end_ns, phase.begin_ns):
            cut = phase.begin_ns < end_ns
            at = max(phase.begin_ns, end_ns)
            left.append(replace(phase, begin_ns=at, begins=phase.begins or cut))
    return left


def with_algorithm(when: Sequence[Phase], at_ns: int, cc: int) -> list[Phase]:
    """The phases, with another algorithm from a time on; flows that send then go on with it."""
    changed = []
    for phase in when:
        if phase.begin_ns < at_ns < phase.end_ns:
            changed.append(replace(phase, end_ns=at_ns))
            changed.append(replace(phase, begin_ns=at_ns, cc=cc, begins=False))
        else:
            changed.append(replace(phase, cc=cc) if phase.begin_ns >= at_ns else phase)
    return changed
