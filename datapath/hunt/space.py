# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The dimensions in which cases vary: one entry of SPACE for each.

A case names the dimensions that differ from their default.  Values are relative where that
makes them independent of the others: a buffer in bandwidth-delay products, a jitter in RTTs.
So a dimension that is put back to its default takes nothing else along.

To add one, add an entry: its values, the keys of an experiment file that it sets, and, if it
takes some of what is possible on the path, what it leaves (`keeps`) or adds to the RTT
(`adds_ns`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from datapath.errors import LocalError
from datapath.hunt.values import Both, Choice, Log, Value, Values, Whole, part, parts_of
from datapath.spelling import or_rather
from datapath.units import format_bit_rate, format_bytes, format_duration_ns, format_fraction
from datapath.verbs.spec import Transport
from datapath.workloads.traffic.ideal import Framing, framing

Case: TypeAlias = Mapping[str, Value]
"""Dimension -> value; missing ones have their default."""

Settings: TypeAlias = Mapping[str, Any]
"""Dotted path into an experiment file -> value; None: the key is left out."""

BDP_MAX = 4 * 2**20
"""Bytes: on longer paths the RTT is lowered, since a run of a hundred RTTs would take long."""
_WINDOW = 2048  # of the engine, packets
_OPPORTUNITY = 1500 + 14 + 24  # bytes that a trace lets go at a time, link/link.h
_TRACE_MAX = 4000
"""Entries of a trace."""
_STAGGER_RTTS = 50
_FLOWS_MAX = 1024
_ACK_BYTES = 128  # on the wire, with its bitmap


@dataclass(frozen=True)
class Dimension:
    """One thing that may vary.

    sets: settings for a value.  default: the value of a case that does not name it; None: there
    is nothing to set then.  units: of the value's parts, for people.  keeps: share of the line
    that a value leaves to payload.  adds_ns: what it adds to the RTT of the path without a queue.
    """

    name: str
    meaning: str
    values: Values
    sets: Callable[[Any, Scale], Settings]
    units: tuple[str, ...] = ("",)
    default: Any = None
    keeps: Callable[[Any, Scale], float] | None = None
    adds_ns: Callable[[Any, Scale], float] | None = None

    def text(self, value: Value) -> str:
        """A value for people: `1%`, `0.5 BDP`, `cubic x 3`."""
        shown = [
            _TEXTS.get(unit, _plain)(part(value, at), unit) for at, unit in enumerate(self.units)
        ]
        return " x ".join(shown)


@dataclass(frozen=True)
class Scale:
    """The base of a case's relative values, and the values that follow.

    transport: settings of that section which hold for all cases.
    """

    case: Case
    transport: Mapping[str, Any] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        return self.case.get(name, by_name(name).default)

    @property
    def rate_bps(self) -> float:
        return float(self.value("rate"))

    @property
    def rtt_ns(self) -> float:
        """Propagation there and back."""
        return min(float(self.value("rtt")), BDP_MAX * 8e9 / self.rate_bps)

    @property
    def bdp_bytes(self) -> float:
        return self.rate_bps * self.rtt_ns / 8e9

    @property
    def competing(self) -> int:
        """Flows that have another algorithm; in an incast all flows have the same."""
        if "competing" not in self.case or self.incast:
            return 0
        return int(part(self.case["competing"], 1))

    @property
    def incast(self) -> int:
        """Bytes that each flow sends, all at once; 0: they send all the time."""
        return int(self.case.get("incast", 0))

    @property
    def stagger_ns(self) -> float:
        """From one flow's start to the next: the last one begins before the 50th RTT."""
        return min(float(self.case["stagger"]), _STAGGER_RTTS / self.pairs) * self.rtt_ns

    @property
    def pairs(self) -> int:
        """Pairs of hosts: a sender and a receiver each."""
        return int(self.value("flows")) + self.competing

    @property
    def qps(self) -> int:
        """Of each sender, fewer where there are many of them."""
        wanted = 1 if self.incast else int(self.case.get("qps", 1))
        return max(min(wanted, _FLOWS_MAX // self.pairs), 1)

    @property
    def flows(self) -> int:
        """All of them."""
        return self.pairs * self.qps

    @functools.cached_property
    def framing(self) -> Framing:
        return framing(Transport.model_validate(self.transport), int(self.value("mtu")))

    @property
    def packet_ns(self) -> float:
        """Time of a full packet on the shared link."""
        return (self.framing.payload + self.framing.overhead) * 8e9 / self.rate_bps

    @property
    def queue_bytes(self) -> int:
        """Room for four packets at least."""
        frame = self.framing.payload + self.framing.overhead
        return int(max(float(self.value("buffer")) * self.bdp_bytes, 4 * frame))

    @property
    def window(self) -> int:
        """Packets that a QP can have in flight."""
        return int(self.case.get("window", 0)) or _WINDOW

    @property
    def trace(self) -> tuple[int, ...]:
        """Milliseconds at which the link may send 1500 bytes: a fast half and a slow one."""
        share, period_ms = self.case["trace"]
        per_ms = self.rate_bps / (_OPPORTUNITY * 8000)
        per_ms = min(per_ms, _TRACE_MAX / period_ms)
        half = period_ms / 2
        counts = [per_ms * (1 if ms < half else share) for ms in range(period_ms)]
        whole = [math.floor(sum(counts[: at + 1])) for at in range(period_ms)]
        each = [now - before for before, now in zip([0, *whole], whole, strict=False)]
        found = [ms for ms, count in enumerate(each, start=1) for _ in range(count)]
        return (*found, period_ms)

    @property
    def trace_bps(self) -> float:
        """Bytes that the trace lets through: in each millisecond no more than the queue holds."""
        each = (self.trace.count(ms) * _OPPORTUNITY for ms in set(self.trace))
        return sum(min(let, self.queue_bytes) for let in each) * 8000 / self.trace[-1]


def _ns(value: float) -> str:
    return format_duration_ns(max(round(value), 1))


def _rate(value: float) -> str:
    return format_bit_rate(max(round(value), 1000))


def _trace(at: Scale) -> Settings:
    back = at.rate_bps * float(at.case.get("ack_rate", 1))
    return {
        "path.rate": None,
        "path.trace": list(at.trace),
        "path.backward.rate": _rate(back),
    }


def _bursts(share: float, length: float, otherwise: Any) -> dict[str, Any]:
    """Gilbert-Elliott: bursts of a mean length in packets that lose a share of all packets."""
    r = 1 / length
    return {
        "model": "gilbert-elliott",
        "p": format_fraction(float(f"{share * r / (1 - share):.3g}")),
        "r": format_fraction(float(f"{r:.3g}")),
        "bad": "100%",
        "good": format_fraction(otherwise),
    }


def _of_streams(at: Scale, key: str, value: Any) -> Settings:
    return {} if at.incast else {f"workload.{key}": value}


SHARES = Log(1e-4, 0.2)
ALGORITHMS = Choice(("bbr", "cubic", "newreno", "vpc"))
"""Competing ones: those that need nothing of the switches."""

SPACE: Sequence[Dimension] = (
    Dimension("rate", "of the shared link", Log(1e7, 2.5e10, 1e9),
              lambda v, at: {"path.rate": _rate(v)}, ("bit/s",), 1e9),
    Dimension("rtt", "of the path without a queue", Log(1e4, 5e7, 2e5),
              lambda v, at: {"path.delay": _ns(at.rtt_ns / 2)}, ("ns",), 2e5),
    Dimension("buffer", "of the shared link, in bandwidth-delay products", Log(0.05, 20, 1),
              lambda v, at: {"path.queue": format_bytes(at.queue_bytes)}, ("BDP",), 1),
    Dimension("flows", "that have the algorithm, each of a host of its own", Whole(1, 64, 2),
              lambda v, at: {}, default=2),
    Dimension("qps", "in the place of each flow, of the same host", Whole(2, 64),
              lambda v, at: _of_streams(at, "qps", at.qps)),
    Dimension("operation", "of each message, in place of a WRITE", Choice(("read", "send")),
              lambda v, at: {"workload.operation": v}),
    Dimension("mtu", "of all links", Choice((4200, 9000)),
              lambda v, at: {"topology.mtu": v}, ("B",), 1500),
    Dimension("window", "packets in flight of a QP, at most", Choice((64, 128, 256, 512, 1024)),
              lambda v, at: {"transport.options.window": v}),
    Dimension("host_rate", "of the hosts' links, in rates of the shared one", Log(1, 100, 100),
              lambda v, at: {"topology.host_rate": _rate(v * at.rate_bps)}, ("x",)),
    Dimension("loss", "random, of data", SHARES,
              lambda v, at: {"path.forward.loss": format_fraction(v)}, ("share",),
              keeps=lambda v, at: 1 - v),
    Dimension("burst", "loss of data in bursts: share, mean length in packets",
              Both((Log(1e-4, 0.1), Whole(2, 64))),
              lambda v, at: {"path.forward.loss": _bursts(v[0], v[1], at.case.get("loss", 0.0))},
              ("share", "packets"), keeps=lambda v, at: 1 - v[0]),
    Dimension("ack_loss", "random, of acknowledgements", SHARES,
              lambda v, at: {"path.backward.loss": format_fraction(v)}, ("share",)),
    Dimension("ack_rate", "of the return path, in rates of the forward path", Log(0.01, 1, 1),
              lambda v, at: {"path.backward.rate": _rate(v * at.rate_bps)}, ("x",),
              adds_ns=lambda v, at: 2 * _ACK_BYTES * 8e9 / (v * at.rate_bps)),
    Dimension("corrupt", "a bit of a packet", Log(1e-4, 0.05),
              lambda v, at: {"path.corrupt": format_fraction(v)}, ("share",),
              keeps=lambda v, at: 1 - v),
    Dimension("duplicate", "packets that arrive twice", Log(1e-3, 0.3),
              lambda v, at: {"path.duplicate": format_fraction(v)}, ("share",)),
    Dimension("jitter", "normal, standard deviation in RTTs", Log(0.01, 2),
              lambda v, at: {"path.jitter": _ns(v * at.rtt_ns)}, ("RTT",),
              adds_ns=lambda v, at: 6 * v * at.rtt_ns),
    Dimension("heavy_jitter", "Pareto, mean in RTTs", Log(0.01, 1),
              lambda v, at: {"path.jitter": {"model": "pareto", "mean": _ns(v * at.rtt_ns)}},
              ("RTT",), adds_ns=lambda v, at: 10 * v * at.rtt_ns),
    Dimension("reorder", "share of packets held back, for how many RTTs",
              Both((Log(1e-3, 0.3), Log(0.05, 2))),
              lambda v, at: {"path.reorder": {"share": format_fraction(v[0]),
                                              "by": _ns(v[1] * at.rtt_ns)}},
              ("share", "RTT"), adds_ns=lambda v, at: 2 * v[1] * at.rtt_ns),
    Dimension("trace", "a rate that falls and rises: to what share, period in ms",
              Both((Log(0.01, 1, 1), Whole(2, 100))), lambda v, at: _trace(at), ("share", "ms"),
              keeps=lambda v, at: min(1.0, at.trace_bps / at.rate_bps),
              adds_ns=lambda v, at: v[1] * 1e6),
    Dimension("ecn", "marks above a queue, in bandwidth-delay products", Log(0.05, 4, 4),
              lambda v, at: {"transport.ecn": True,
                             "path.ecn": format_bytes(round(v * at.bdp_bytes))}, ("BDP",)),
    Dimension("competing", "flows of another algorithm", Both((ALGORITHMS, Whole(1, 8))),
              lambda v, at: _of_streams(at, "competing", {"algo": v[0], "pairs": v[1]}),
              ("", "flows")),
    Dimension("stagger", "from one flow's start to the next, in RTTs", Log(0.005, 50),
              lambda v, at: _of_streams(at, "stagger", _ns(at.stagger_ns)), ("RTT",)),
    Dimension("incast", "all flows send so much at once, and no more", Log(2**12, 2**20, 2**20),
              lambda v, at: {}, ("B",)),
)  # fmt: skip


@functools.cache
def by_name(name: str) -> Dimension:
    """LocalError, with a hint, when there is none."""
    for dimension in SPACE:
        if dimension.name == name:
            return dimension
    names = [dimension.name for dimension in SPACE]
    raise LocalError(f"no dimension {name!r}{or_rather(name, names, 'there are')}")


def causes(case: Case) -> tuple[str, ...]:
    """Differences of a case from the default, in words: `loss`, `rate high`, `mtu 9000`."""
    return tuple(
        f"{name} {word}".strip()
        for name, value in sorted(case.items())
        for word in _words(name, value)
    )


def _words(name: str, value: Value) -> list[str]:
    dimension = by_name(name)
    if dimension.default is not None and isinstance(dimension.values, Log):
        return ["high" if value > dimension.default else "low"]
    chosen = [
        str(part(value, at))
        for at, values in enumerate(parts_of(dimension.values))
        if isinstance(values, Choice)
    ]
    return chosen or [""]


# --- for people --------------------------------------------------------------------------------


def _plain(value: Any, unit: str) -> str:
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{shown} {unit}".strip()


_TEXTS: Mapping[str, Callable[[Any, str], str]] = {
    "bit/s": lambda value, _unit: format_bit_rate(round(value)),
    "ns": lambda value, _unit: format_duration_ns(round(value)),
    "share": lambda value, _unit: format_fraction(value),
    "B": lambda value, _unit: format_bytes(round(value)),
}


def describe(case: Case) -> str:
    """A case for people: `loss=1%, flows=8`; `always` for the default one."""
    shown = [f"{name}={by_name(name).text(value)}" for name, value in sorted(case.items())]
    return ", ".join(shown) or "always"
