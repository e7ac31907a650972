# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Settings of a link and of a switch's buffer, as core/link.h and core/switch.h have them.

Times are nanoseconds, sizes bytes, rates bit/s, shares between 0 and 1.  A frame counts with
everything that it takes of an Ethernet wire (24 bytes of FCS, preamble and gap included).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Any, Literal

PAUSE_FRAME_BYTES = 64 + 20
"""On the wire, as fabric/sim/graph.c has it."""


@dataclass(frozen=True)
class Marking:
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
class Loss:
    """Two-state loss (Elliott, 1963); p = 0: Bernoulli with share `good`."""

    good: float = 0.0
    bad: float = 1.0
    p: float = 0.0
    r: float = 0.0


@dataclass(frozen=True)
class Jitter:
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
class QueueClass:
    """One of several queues of a link; weight 0 is strict priority over all behind it."""

    weight: int = 0
    limit_bytes: int = 0


@dataclass(frozen=True)
class Link:
    """One direction of a link.

    rate_bps: 0: a frame takes no time.  trace_ms: delivery opportunities of 1500 bytes, as
    mahimahi has them, in place of a rate.  limit_bytes: of the queue, 0: no limit.  trim: cut
    off the payload of what the queue would drop.  telemetry: stamp a record on each packet.
    """

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

    def fill(self, ffi: Any, config: Any) -> list[Any]:
        """Write it into a `struct dp_link_config`; returns what has to live as long as that."""
        kept: list[Any] = []
        config.rate_bps, config.delay_ns = self.rate_bps, self.delay_ns
        config.limit_bytes, config.trim = self.limit_bytes, self.trim
        config.telemetry = self.telemetry
        config.reorder, config.reorder_ns = self.reorder, self.reorder_ns
        config.duplicate, config.corrupt = self.duplicate, self.corrupt
        if self.trace_ms:
            kept.append(ffi.new("uint32_t[]", list(self.trace_ms)))
            config.trace.ms, config.trace.n = kept[-1], len(self.trace_ms)
        if self.loss is not None:
            config.loss.p, config.loss.r = self.loss.p, self.loss.r
            config.loss.good, config.loss.bad = self.loss.good, self.loss.bad
        if self.marking is not None:
            config.marking.kind = {"step": 1, "red": 2}[self.marking.kind]
            config.marking.kmin_bytes = self.marking.kmin_bytes
            config.marking.kmax_bytes = self.marking.kmax_bytes
            config.marking.pmax = self.marking.pmax
        if self.jitter is not None:
            jitter = config.jitter
            jitter.kind = {"normal": 1, "pareto": 2, "trace": 3}[self.jitter.kind]
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
        return kept


@dataclass(frozen=True)
class SharedBuffer:
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


def headroom_bytes(link: Link, frame_bytes: int) -> int:
    """What can arrive over a link after the frame that made its end ask for a pause, with it.

    While the pause frame is on its way back, the other side sends on, and what it has sent is on
    its way for another delay.  Neither side interrupts a frame (IEEE 802.1Qbb, annex O).
    """
    back_ns = 2 * link.delay_ns * link.rate_bps / 8e9
    return ceil(back_ns) + PAUSE_FRAME_BYTES + 2 * frame_bytes
