# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The limits that an algorithm should meet in a case, and its distance from them.

Each limit is a bound of one metric of the run, so that the same words stand in the table of
findings and, as a claim, in the file that replays one.  The score of a run for a symptom is by
what factor it misses the worst of the symptom's limits: above 1 is bad.

What is possible on a path is the line rate, less headers, random loss and corruption, and less
what the window of the QPs cannot fill; on a rate trace, what the trace lets through.  A sender
that knows the path and paces reaches it.  Half of it is enough here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from datapath.experiment.metrics import UNITS
from datapath.hunt.space import Scale, by_name
from datapath.units import format_bit_rate, format_duration_ns

BROKEN = "broken"
"""Engine or simulator broke one of their invariants."""
ENDLESS = "endless"
"""The run did not come back: a loop of the algorithm has no end."""
DIED = "died"
"""A QP gave up (RETRY_EXC)."""
LOW_GOODPUT = "low-goodput"
STANDING_QUEUE = "standing-queue"
UNFAIR = "unfair"
GIVES_WAY = "gives-way"
PUSHES_ASIDE = "pushes-aside"
STALL = "stall"
SPURIOUS = "spurious"

SYMPTOMS: Mapping[str, str] = {
    BROKEN: "engine or simulator broke an invariant, or crashed: a mistake in the toolkit",
    ENDLESS: "a call of the algorithm did not come back",
    DIED: "a QP gave up with RETRY_EXC",
    LOW_GOODPUT: "less than half of what was possible was delivered",
    STANDING_QUEUE: "median RTT above 3 times that of the idle path, or p99 above 10 times",
    UNFAIR: "Jain's index of equal flows below 0.7",
    GIVES_WAY: "less than a third of the fair share beside another algorithm",
    PUSHES_ASIDE: "another algorithm beside it gets less than a third of its fair share",
    STALL: "a flow delivered nothing for 30 RTTs and 60 ms",
    SPURIOUS: "more than 5 % of the packets were sent again in vain",
}
"""Symptom -> its meaning, the worst first."""

SCORE_MAX = 1000.0
SCORE_OF_FAILURE: Mapping[str, float] = {BROKEN: SCORE_MAX, ENDLESS: SCORE_MAX, DIED: 10.0}
"""Of a run; several runs have the mean of theirs."""

_GOODPUT_SHARE = 0.5
_RTTS_P50, _RTTS_P99 = 3, 10
_JAIN = 0.7
_FAIR = 0.3333
_STALL_RTTS, _STALL_NS = 30, 60_000_000
"""Two time-outs of a QP that has not measured its RTT yet: 20 and 40 ms."""
_SPURIOUS = 0.05
_START_RTTS = 20
"""RTTs in which a flow may find out the capacity of the path."""
_UNFINISHED = 0.001
_PACKETS_TO_JUDGE = 200
"""Of each flow: below, fairness is that of single packets."""


@dataclass(frozen=True)
class Limit:
    """A bound, in the unit of its metric, for which a symptom is named."""

    symptom: str
    metric: str
    min: float | None = None
    max: float | None = None

    def score(self, value: float) -> float:
        """By what factor a value misses the bound; above 1: it does."""
        if self.min is not None:
            return min(self.min / value, SCORE_MAX) if value > 0 else SCORE_MAX
        assert self.max is not None
        return min(value / self.max, SCORE_MAX)

    def claim(self) -> dict[str, object]:
        """As an entry of `report.expect`."""
        unit = UNITS[self.metric]
        bounds = {
            name: _WRITTEN[unit](value)
            for name, value in (("min", self.min), ("max", self.max))
            if value is not None
        }
        title = f"{self.symptom}: {SYMPTOMS[self.symptom]}"
        return {"title": f"not {title}", "metric": self.metric, **bounds}


_WRITTEN: Mapping[str, Callable[[float], str | float]] = {
    "bit/s": lambda value: format_bit_rate(round(value)),
    "ns": lambda value: format_duration_ns(round(value)),
    "1": lambda value: value,
}


def scores(metrics: Mapping[str, float], limits: Sequence[Limit]) -> dict[str, float]:
    """Symptom -> score, of those that have limits and metrics."""
    found: dict[str, float] = {}
    for limit in limits:
        if limit.metric in metrics:
            score = limit.score(metrics[limit.metric])
            found[limit.symptom] = max(found.get(limit.symptom, 0.0), score)
    return found


def possible_bps(at: Scale) -> float:
    """Payload, bit/s, of all flows together."""
    line = at.rate_bps * at.framing.payload_share * _kept(at)
    window = at.flows * at.window * at.framing.payload * 8e9 / idle_rtt_ns(at)
    return min(line, window)


def idle_rtt_ns(at: Scale) -> float:
    """RTT of a full packet on the path without a queue, with jitter and the like."""
    added = 0.0
    for name, value in at.case.items():
        adds_ns = by_name(name).adds_ns
        added += adds_ns(value, at) if adds_ns is not None else 0.0
    return at.rtt_ns + 2 * at.packet_ns + added


def limits(at: Scale, duration_ns: float) -> list[Limit]:
    """The requirements of a case; of streams, over their duration."""
    # Flows do not send less than a packet at a time, and two are what pacing asks for.
    rtt_ns = idle_rtt_ns(at) + 2 * at.flows * at.packet_ns
    asked = [
        Limit(LOW_GOODPUT, "goodput", min=_least_goodput(at, duration_ns)),
        Limit(STALL, "longest_stall", max=_whole(_STALL_RTTS * rtt_ns + _STALL_NS)),
        Limit(SPURIOUS, "spurious_share", max=round(_SPURIOUS + _duplicated(at), 4)),
    ]
    if at.competing:
        return [*asked, *_beside_others()]
    if at.incast:
        return [*asked, Limit(LOW_GOODPUT, "unfinished_share", max=_UNFINISHED)]
    asked += [
        Limit(STANDING_QUEUE, "rtt_p50", max=_whole(_RTTS_P50 * rtt_ns)),
        Limit(STANDING_QUEUE, "rtt_p99", max=_whole(_RTTS_P99 * rtt_ns)),
    ]
    packets = possible_bps(at) * duration_ns / (8e9 * at.framing.payload * at.flows)
    if at.flows > 1 and packets >= _PACKETS_TO_JUDGE:
        asked.append(Limit(UNFAIR, "fairness", min=_JAIN))
    return asked


def _least_goodput(at: Scale, duration_ns: float) -> float:
    possible, start_ns = possible_bps(at), _START_RTTS * idle_rtt_ns(at)
    if at.incast:
        sent_bits = 8e9 * at.flows * at.incast
        return _whole(_GOODPUT_SHARE * sent_bits / (sent_bits / possible + start_ns))
    return _whole(_GOODPUT_SHARE * possible * max(1 - start_ns / duration_ns, 0.1))


def _beside_others() -> list[Limit]:
    """Neither may the algorithm starve, nor the other."""
    return [
        Limit(GIVES_WAY, "fair_share", min=_FAIR),
        Limit(PUSHES_ASIDE, "competing_fair_share", min=_FAIR),
    ]


def _kept(at: Scale) -> float:
    """Share of the line that the conditions of a case leave to payload."""
    shares = (
        keeps(value, at)
        for name, value in at.case.items()
        if (keeps := by_name(name).keeps) is not None
    )
    return math.prod(shares)


def _duplicated(at: Scale) -> float:
    """The path's own duplicates are not the sender's fault."""
    return float(at.case.get("duplicate", 0.0))


def _whole(value: float) -> float:
    return float(max(round(value), 1))
