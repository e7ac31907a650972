# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Settings of a link and of a switch's buffer, as link/link.h and link/switch.h have them.

Times are nanoseconds, sizes bytes, rates bit/s, shares between 0 and 1.  A frame counts with
everything that it takes of an Ethernet wire (24 bytes of FCS, preamble and gap included).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import inf
from typing import Any, ClassVar, Literal

from datapath.errors import LocalError
from datapath.fabric.members import U32_MAX, WholeNumbers
from datapath.link.impairments import IMPAIRMENTS

PAUSE_FRAME_BYTES = 64 + 20
"""On the wire, as fabric/sim/graph.c has it."""

CLASSES_MAX = 8
"""Queues of a link: DP_LINK_CLASSES."""
DELAY_NS_MAX = 10 * 10**9
"""Of a link, and of each thing that adds to it."""
QUEUE_BYTES_MAX = 2**40
"""Of a link or a switch, and of thresholds in it."""
TRACE_MS_MAX = U32_MAX
"""The latest time of a trace of delivery opportunities: 49 days."""
_ETHERNET_BYTES = 14 + 24
"""Bytes of a frame on the wire beside those that the MTU counts."""
OPPORTUNITY_BYTES = 1500 + _ETHERNET_BYTES
"""On the wire: DP_LINK_OPPORTUNITY."""


@dataclass(frozen=True)
class Marking(WholeNumbers):
    """When a queue marks ECN-capable packets.

    step: above kmin_bytes (DCTCP, SIGCOMM 2010, section 3.1).  red: from kmin_bytes on with a
    probability that rises to pmax at kmax_bytes, from there on always (DCQCN, SIGCOMM 2015,
    figure 5).
    """

    kind: Literal["step", "red"] = "step"
    kmin_bytes: int = 0
    kmax_bytes: int = 0
    pmax: float = 0.0


@dataclass(frozen=True)
class Loss(WholeNumbers):
    """Two-state loss (Elliott, 1963): shares `good` and `bad` of the frames in the two states.

    The state changes after each frame with probability p (to bad) or r; or, if good_ns and bad_ns
    are given in their place, after exponentially distributed times with these means, whatever is
    sent.  Neither: Bernoulli with share `good`.
    """

    good: float = 0.0
    bad: float = 1.0
    p: float = 0.0
    r: float = 0.0
    good_ns: int = 0
    bad_ns: int = 0


@dataclass(frozen=True)
class Policer(WholeNumbers):
    """A token bucket before the queue (RFC 2697 without its excess bucket).

    burst_bytes: size of the bucket, full at the beginning.  A frame that finds fewer tokens than
    it has bytes is dropped and takes none.
    """

    rate_bps: int
    burst_bytes: int


@dataclass(frozen=True)
class CoDel(WholeNumbers):
    """Drops, at their turn, frames that have waited too long (RFC 8289, section 5).

    target_ns, interval_ns: TARGET and INTERVAL.  ecn: mark ECN-capable frames instead.
    """

    kind: ClassVar[int] = 1

    target_ns: int = 5_000_000
    interval_ns: int = 100_000_000
    ecn: bool = False


@dataclass(frozen=True)
class FqCoDel(WholeNumbers):
    """CoDel for each of so many hashes of flows, which take turns (RFC 8290, section 4).

    quantum_bytes: credit of a queue for each round, in bytes on the wire.
    """

    kind: ClassVar[int] = 2
    at_most: ClassVar[Mapping[str, int]] = {"flows": U32_MAX, "quantum_bytes": U32_MAX}

    target_ns: int = 5_000_000
    interval_ns: int = 100_000_000
    ecn: bool = True
    flows: int = 1024
    quantum_bytes: int = 1514


@dataclass(frozen=True)
class Pie(WholeNumbers):
    """Drops on arrival with a probability that follows the delay (RFC 8033, section 4).

    target_ns: QDELAY_REF.  interval_ns: T_UPDATE.  alpha, beta: 1/s.  max_burst_ns: MAX_BURST.
    ecn: mark ECN-capable frames instead, while the probability is below mark_max.
    """

    kind: ClassVar[int] = 3

    target_ns: int = 15_000_000
    interval_ns: int = 15_000_000
    alpha: float = 0.125
    beta: float = 1.25
    max_burst_ns: int = 150_000_000
    ecn: bool = False
    mark_max: float = 0.1


Aqm = CoDel | FqCoDel | Pie
"""Active queue management: keeps the queue short by dropping before it is full."""


@dataclass(frozen=True)
class Jitter(WholeNumbers):
    """Added to the delay of each frame; the order of frames is kept unless `reorders`.

    normal: scale_ns is the standard deviation.  pareto: scale_ns is the mean, shape the tail
    index.  trace: samples_ns, taken in turn.
    """

    kind: Literal["normal", "pareto", "trace"] = "normal"
    scale_ns: float = 0.0
    shape: float = 3.0
    samples_ns: tuple[float, ...] = ()
    reorders: bool = False


@dataclass(frozen=True)
class QueueClass(WholeNumbers):
    """One of several queues of a link; weight 0 is strict priority over all behind it.

    rate_bps: shaped to that rate, with a bucket that holds one frame; 0: not shaped.  share: in its
    place, a share of the link's rate.  jitter: share by which the time between two frames of it
    varies.  dscp: of the packets that go into it; the class with none takes all others.  credits:
    it takes CREDIT packets.  lossless: a shared buffer with PFC drops nothing of it.
    """

    at_most: ClassVar[Mapping[str, int]] = {"weight": U32_MAX}

    weight: int = 0
    limit_bytes: int = 0
    rate_bps: int = 0
    jitter: float = 0.0
    share: float = 0.0
    dscp: tuple[int, ...] = ()
    credits: bool = False
    lossless: bool = False


@dataclass(frozen=True)
class Link(WholeNumbers):
    """One direction of a link.

    rate_bps: 0: a frame takes no time.  trace_ms: delivery opportunities of 1500 bytes, as
    mahimahi has them, in place of a rate.  limit_bytes: of the queue, 0: no limit.  trim: cut
    off the payload of what the queue would drop.  telemetry: stamp a record on each packet.
    impairments: (name, setting) of those that are on (link/impairments.py).
    aqm: for a link with one class, and not beside marking, trim or a shared buffer.
    """

    at_most: ClassVar[Mapping[str, int]] = {"delay_ns": 2**60}  # sums over ways have 64 bits, too

    rate_bps: int = 100_000_000_000
    delay_ns: int = 1_000
    limit_bytes: int = 0
    marking: Marking | None = None
    loss: Loss | None = None
    jitter: Jitter | None = None
    reorder: float = 0.0
    reorder_ns: int = 0
    duplicate: float = 0.0
    corrupt: float = 0.0
    trim: bool = False
    telemetry: bool = False
    trace_ms: tuple[int, ...] = ()
    classes: tuple[QueueClass, ...] = field(default=())
    policer: Policer | None = None
    aqm: Aqm | None = None
    impairments: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, _ in self.impairments:
            if name not in IMPAIRMENTS:
                raise LocalError(
                    f"Link: {name!r} is no impairment",
                    hint=f"impairments: {', '.join(IMPAIRMENTS)}",
                )
        if len(self.classes) > CLASSES_MAX:
            raise LocalError(f"Link: it has {len(self.classes)} classes, and at most {CLASSES_MAX}")
        first, last = min(self.trace_ms, default=0), max(self.trace_ms, default=0)
        if self.trace_ms and (first < 0 or last > TRACE_MS_MAX or not self.trace_ms[-1]):
            raise LocalError(
                f"Link: trace_ms goes from {first} to {last} and ends with {self.trace_ms[-1]}: "
                f"milliseconds, the last one from 1 to {TRACE_MS_MAX}"
            )

    def numbers(self) -> dict[str, int | float | bool]:
        """The settings that are single numbers, by name, which C has too."""
        names = [one.name for one in fields(self) if one.type in ("int", "float", "bool")]
        return {name: getattr(self, name) for name in names}

    def fill(self, ffi: Any, config: Any) -> list[Any]:
        """Write it into a `struct dp_link_config`; returns objects that have to live as long."""
        kept: list[Any] = []
        for name, number in self.numbers().items():
            setattr(config, name, number)
        numbers = {name: number for number, name in enumerate(IMPAIRMENTS)}
        for name, setting in self.impairments:
            config.impairment[numbers[name]] = setting
        if self.trace_ms:
            kept.append(ffi.new("uint32_t[]", list(self.trace_ms)))
            config.trace.ms, config.trace.n = kept[-1], len(self.trace_ms)
        if self.loss is not None:
            config.loss.p, config.loss.r = self.loss.p, self.loss.r
            config.loss.good, config.loss.bad = self.loss.good, self.loss.bad
            config.loss.good_ns, config.loss.bad_ns = self.loss.good_ns, self.loss.bad_ns
        if self.policer is not None:
            config.policer.rate_bps = self.policer.rate_bps
            config.policer.burst_bytes = self.policer.burst_bytes
        if self.aqm is not None:
            config.aqm.kind = self.aqm.kind
            for name, value in asdict(self.aqm).items():
                setattr(config.aqm, name, value)
        if self.marking is not None:
            config.marking.kind = _numbered(self.marking, "step", "red")
            config.marking.kmin_bytes = self.marking.kmin_bytes
            config.marking.kmax_bytes = self.marking.kmax_bytes
            config.marking.pmax = self.marking.pmax
        if self.jitter is not None:
            jitter = config.jitter
            jitter.kind = _numbered(self.jitter, "normal", "pareto", "trace")
            jitter.reorders = self.jitter.reorders
            jitter.scale_ns, jitter.shape = self.jitter.scale_ns, self.jitter.shape
            if self.jitter.samples_ns:
                kept.append(ffi.new("double[]", list(self.jitter.samples_ns)))
                jitter.sample, jitter.n_samples = kept[-1], len(self.jitter.samples_ns)
        config.n_classes = len(self.classes)
        classes = getattr(config, "class")
        for index, one in enumerate(self.classes):
            classes[index].weight = one.weight
            classes[index].limit_bytes = one.limit_bytes
            classes[index].rate_bps, classes[index].jitter = self.shaped_bps(one), one.jitter
        return kept

    def shaped_bps(self, one: QueueClass) -> int:
        """The rate to which a class of this link is shaped; 0: it is not."""
        return one.rate_bps or int(one.share * self.mean_rate_bps)

    @property
    def mean_rate_bps(self) -> float:
        """Of the trace, if there is one."""
        if not self.trace_ms:
            return self.rate_bps
        return len(self.trace_ms) * OPPORTUNITY_BYTES * 8e3 / self.trace_ms[-1]


DSCPS = 64
"""Values of the field."""


def classes_by_dscp(classes: Sequence[QueueClass]) -> tuple[int, ...]:
    """The class of each DSCP, shape (DSCPS,); () if no class names what goes into it."""
    if not any(one.dscp or one.credits for one in classes):
        return ()
    others = [i for i, one in enumerate(classes) if not one.dscp and not one.credits]
    found = [others[0] if others else 0] * DSCPS
    for index, one in enumerate(classes):
        for dscp in one.dscp:
            found[dscp] = index
    return tuple(found)


def ranks_by_dscp(classes: Sequence[QueueClass]) -> tuple[int, ...]:
    """In which order a host's flows send, by DSCP, shape (DSCPS,).

    First those of strict classes, in the order of these; all others in turn.  () as above.
    """
    strict = [
        index
        for index, one in enumerate(classes)
        if not (one.weight or one.rate_bps or one.share or one.credits)
    ]
    rank = {index: place for place, index in enumerate(strict)}
    return tuple(rank.get(number, len(strict)) for number in classes_by_dscp(classes))


def class_of_credits(classes: Sequence[QueueClass]) -> int | None:
    """The class that takes CREDIT packets; None: that of their DSCP."""
    return next((index for index, one in enumerate(classes) if one.credits), None)


@dataclass(frozen=True)
class SharedBuffer(WholeNumbers):
    """The packet buffer of a switch: dynamic thresholds, and PFC for the classes of a mask.

    alpha: 0: only total_bytes limits.  xoff, xon and headroom are of each ingress port and class;
    see headroom_bytes().
    """

    total_bytes: int
    alpha: float = 1.0
    pfc_classes: int = 0
    xoff_bytes: int = 0
    xon_bytes: int = 0
    headroom_bytes: int = 0

    def fill(self, config: Any) -> None:
        """Write it into a `struct dp_buffer_config`."""
        config.total_bytes, config.alpha = self.total_bytes, self.alpha
        config.pfc_classes = self.pfc_classes
        config.xoff_bytes, config.xon_bytes = self.xoff_bytes, self.xon_bytes
        config.headroom_bytes = self.headroom_bytes


def _numbered(setting: Marking | Jitter, *kinds: str) -> int:
    """The number of a setting's kind, from 1, as link.h has them; LocalError for another kind."""
    if setting.kind not in kinds:
        raise LocalError(
            f"{type(setting).__name__}: kind is {setting.kind!r}", hint=f"kinds: {', '.join(kinds)}"
        )
    return kinds.index(setting.kind) + 1


def frame_bytes(mtu: int) -> int:
    """Bytes on the wire of the largest IP packet of an MTU."""
    return mtu + _ETHERNET_BYTES


def _latest_ns(link: Link) -> float:
    """The longest time from the end of a frame's transmission to its arrival; inf: no limit."""
    late = link.delay_ns + dict(link.impairments).get("slot", 0.0)
    if link.reorder:
        late += link.reorder_ns
    if link.jitter is None:
        return late
    if link.jitter.kind == "trace":
        return late + max((0.0, *link.jitter.samples_ns))
    return inf if link.jitter.scale_ns else late


def headroom_bytes(link: Link, back: Link, frame: int) -> float:
    """What can arrive over a link after the frame that made its end ask for a pause, with it.

    back: the other direction.  frame: bytes of the largest frame.  inf: there is no limit.

    While the pause frame is on its way back, the other side sends on, and what it has sent is on
    its way for another delay.  Neither side interrupts a frame (IEEE 802.1Qbb, annex O).
    """
    most = (_latest_ns(link) + back.delay_ns) * link.rate_bps / 8e9 + 2 * frame
    if back.rate_bps:
        most += PAUSE_FRAME_BYTES * (link.rate_bps / back.rate_bps)
    return most * (2 if link.duplicate else 1)
