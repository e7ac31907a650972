# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The settings of `path` that need a link model: rate, delay, queue, and faults of a wire."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    model_validator,
)

from datapath import foreign
from datapath.fabric.links import (
    CLASSES_MAX,
    DELAY_NS_MAX,
    QUEUE_BYTES_MAX,
    TRACE_MS_MAX,
    CoDel,
    FqCoDel,
    Jitter,
    Marking,
    Pie,
    Policer,
)
from datapath.lanes.class_spec import TrafficClass, check_classes
from datapath.link.impairments import IMPAIRMENTS, Impairment
from datapath.units import BitRate, Bytes, DurationNs, Fraction, Probability

_NUMBERS_BYTES_MAX = 8 * 2**20
"""Of a file of numbers: a trace of about a million packets."""

QUEUE_BYTES = 2**20
"""Queue of a link for which none is named."""


def _short_for(model: str | None, key: str) -> BeforeValidator:
    """A value that is no mapping stands for {model: model, key: value}."""
    head = {"model": model} if model else {}

    def expand(value: Any) -> Any:
        if value is None or isinstance(value, BaseModel):
            return value
        return {**head, **value} if isinstance(value, dict) else {**head, key: value}

    return BeforeValidator(expand)


def _numbers_of_file(value: Any, info: ValidationInfo) -> Any:
    """The numbers of a file, one a line, in place of its name.

    The name is relative to `folder` of the validation context, the experiment's folder.
    """
    if not isinstance(value, str):
        return value
    folder = (info.context or {}).get("folder", "")
    try:
        text = foreign.read_text(FilePath(folder, value), _NUMBERS_BYTES_MAX, encoding="ascii")
        return [int(word) for word in text.split()]
    except (OSError, UnicodeError, foreign.Refused) as error:
        raise ValueError(f"cannot read {value}: {error}") from None
    except ValueError:
        raise ValueError(f"{value} is not a list of whole numbers, one a line") from None


def _samples_of_file(value: Any, info: ValidationInfo) -> Any:
    numbers = _numbers_of_file(value, info)
    return numbers if numbers is value else [f"{number}ns" for number in numbers]


def _list_or_file(item: dict[str, Any]) -> WithJsonSchema:
    listed = {"type": "array", "items": item, "minItems": 1}
    return WithJsonSchema({"anyOf": [listed, {"type": "string"}, {"type": "null"}]})


class NormalJitter(BaseModel):
    """Added to the delay, normally distributed around 0; the sum is never negative."""

    model_config = ConfigDict(extra="forbid")

    model: Literal["normal"] = "normal"
    stddev: DurationNs = Field(le=DELAY_NS_MAX, description="Standard deviation.")
    reorders: bool = Field(False, description="Whether a frame may overtake another.")

    def setting(self) -> Jitter:
        return Jitter("normal", scale_ns=float(self.stddev), reorders=self.reorders)


class ParetoJitter(BaseModel):
    """Added to the delay, with a heavy tail: P(X > x) = (1 + x / s)^-shape (Pareto, type II)."""

    model_config = ConfigDict(extra="forbid")

    model: Literal["pareto"] = "pareto"
    mean: DurationNs = Field(le=DELAY_NS_MAX, description="Mean of what is added.")
    shape: float = Field(3.0, gt=1, le=100, description="Tail index: smaller is heavier.")
    reorders: bool = Field(False, description="Whether a frame may overtake another.")

    def setting(self) -> Jitter:
        return Jitter("pareto", scale_ns=float(self.mean), shape=self.shape, reorders=self.reorders)


class TraceJitter(BaseModel):
    """Added to the delay, frame by frame, from a list that is repeated."""

    model_config = ConfigDict(extra="forbid")

    model: Literal["trace"] = "trace"
    samples: Annotated[
        list[Annotated[DurationNs, Field(le=DELAY_NS_MAX)]],
        Field(min_length=1),
        BeforeValidator(_samples_of_file),
        _list_or_file({"type": ["string", "integer"]}),
    ] = Field(
        description="What is added, in turn; or the name of a file with nanoseconds, one a line."
    )
    reorders: bool = Field(False, description="Whether a frame may overtake another.")

    def setting(self) -> Jitter:
        samples = tuple(float(sample) for sample in self.samples)
        return Jitter("trace", samples_ns=samples, reorders=self.reorders)


class StepMarking(BaseModel):
    """CE for every ECN-capable packet that finds more than `threshold` waiting (DCTCP)."""

    model_config = ConfigDict(extra="forbid")

    model: Literal["step"] = "step"
    threshold: Bytes = Field(
        le=QUEUE_BYTES_MAX, description="Bytes that wait, the packet under way not counted."
    )

    def setting(self) -> Marking:
        return Marking("step", kmin_bytes=self.threshold)


class RedMarking(BaseModel):
    """CE with a probability that rises with the queue as it is now (DCQCN, figure 5)."""

    model_config = ConfigDict(extra="forbid")

    model: Literal["red"] = "red"
    min: Bytes = Field(le=QUEUE_BYTES_MAX, description="Bytes up to which nothing is marked.")
    max: Bytes = Field(le=QUEUE_BYTES_MAX, description="Bytes from which everything is marked.")
    probability: Fraction = Field(description="Just below max.")

    @model_validator(mode="after")
    def _ordered(self) -> RedMarking:
        if self.min > self.max:
            raise ValueError("min is larger than max")
        return self

    def setting(self) -> Marking:
        return Marking("red", kmin_bytes=self.min, kmax_bytes=self.max, pmax=self.probability)


_Delay = Annotated[DurationNs, Field(ge=1_000, le=DELAY_NS_MAX)]
"""A target or an interval of an AQM."""


class CoDelQueue(BaseModel):
    """CoDel (RFC 8289): drops, at their turn, packets that have waited too long."""

    model_config = ConfigDict(extra="forbid")

    model: Literal["codel"] = "codel"
    target: _Delay = Field(5_000_000, description="TARGET: acceptable time in the queue.")
    interval: _Delay = Field(
        100_000_000, description="INTERVAL: how long more than the target is tolerated."
    )
    ecn: bool = Field(False, description="Mark ECN-capable packets instead of dropping them.")

    def setting(self) -> CoDel:
        return CoDel(self.target, self.interval, self.ecn)


class FqCoDelQueue(BaseModel):
    """FQ-CoDel (RFC 8290): flows take turns, and CoDel acts on each of them."""

    model_config = ConfigDict(extra="forbid")

    model: Literal["fq-codel"] = "fq-codel"
    target: _Delay = Field(5_000_000, description="TARGET: acceptable time in the queue.")
    interval: _Delay = Field(
        100_000_000, description="INTERVAL: how long more than the target is tolerated."
    )
    ecn: bool = Field(True, description="Mark ECN-capable packets instead of dropping them.")
    flows: int = Field(1024, ge=1, le=65536, description="Queues, by hash of the flow.")
    quantum: Bytes = Field(
        1514, ge=256, le=2**20, description="Bytes on the wire that a queue may send in a turn."
    )

    def setting(self) -> FqCoDel:
        return FqCoDel(self.target, self.interval, self.ecn, self.flows, self.quantum)


class PieQueue(BaseModel):
    """PIE (RFC 8033): drops arrivals with a probability that follows the queueing delay."""

    model_config = ConfigDict(extra="forbid")

    model: Literal["pie"] = "pie"
    target: _Delay = Field(15_000_000, description="QDELAY_REF: the delay to be kept.")
    update: Annotated[DurationNs, Field(ge=100_000, le=DELAY_NS_MAX)] = Field(
        15_000_000, description="T_UPDATE: time between two updates of the probability."
    )
    alpha: float = Field(0.125, ge=0.001, le=1000, description="Gain of the delay's error, 1/s.")
    beta: float = Field(1.25, ge=0, le=1000, description="Gain of the delay's change, 1/s.")
    max_burst: DurationNs = Field(
        150_000_000,
        le=DELAY_NS_MAX,
        description="MAX_BURST: so long nothing is dropped when a queue begins to build up.",
    )
    ecn: bool = Field(False, description="Mark ECN-capable packets instead of dropping them.")
    mark_max: Fraction = Field(
        0.1, description="With ecn: probability from which ECN-capable packets are dropped too."
    )

    def setting(self) -> Pie:
        return Pie(
            target_ns=self.target,
            interval_ns=self.update,
            alpha=self.alpha,
            beta=self.beta,
            max_burst_ns=self.max_burst,
            ecn=self.ecn,
            mark_max=self.mark_max,
        )


class PolicerBucket(BaseModel):
    """A token bucket before the queue: packets beyond it are dropped, none waits."""

    model_config = ConfigDict(extra="forbid")

    rate: Annotated[BitRate, Field(ge=1000)] = Field(
        description="Long-run rate that passes, everything on an Ethernet wire counted."
    )
    burst: Annotated[Bytes, Field(ge=1, le=2**30)] = Field(
        description="Bytes that pass at once after a silence: the size of the bucket."
    )

    def setting(self) -> Policer:
        return Policer(self.rate, self.burst)


class Reordering(BaseModel):
    """A share of packets is held back for a while, so that others overtake them."""

    model_config = ConfigDict(extra="forbid")

    share: Probability = Field(description="Share of packets.")
    by: DurationNs = Field(500_000, le=DELAY_NS_MAX, description="How long.")

    def setting(self) -> tuple[float, int]:
        return self.share, self.by


JitterModel = Annotated[NormalJitter | ParetoJitter | TraceJitter, Field(discriminator="model")]
MarkingModel = Annotated[StepMarking | RedMarking, Field(discriminator="model")]
AqmModel = Annotated[CoDelQueue | FqCoDelQueue | PieQueue, Field(discriminator="model")]


class Sets:
    """Arguments of Link that a key sets.  A key with several has a model with as many values."""

    def __init__(self, *arguments: str) -> None:
        self.arguments = arguments


_UNITS: Mapping[str, Any] = {
    "ns": DurationNs | None,
    "bytes": Bytes | None,
    "share": Fraction | None,
}


def _key(row: Impairment) -> Any:
    """Type and field of an impairment's key."""
    return _UNITS[row.unit], Field(None, ge=row.low, le=row.high, description=row.text)


_Impairments = create_model(
    "_Impairments",
    __config__=ConfigDict(extra="forbid"),
    **{row.name: _key(row) for row in IMPAIRMENTS.values()},
)


class LinkSettings(_Impairments):
    """Keys of `path` and of its directions that need a link model; unset: not done."""

    rate: Annotated[BitRate | None, Sets("rate_bps")] = Field(
        None, ge=1000, description="Of the link, everything on an Ethernet wire counted."
    )
    trace: Annotated[
        Annotated[list[int], Field(min_length=1)] | None,
        BeforeValidator(_numbers_of_file),
        _list_or_file({"type": "integer"}),
        Sets("trace_ms"),
    ] = Field(
        None,
        description="In place of rate: milliseconds at which a packet of 1500 bytes may leave, "
        "repeated; or the name of such a file, as mahimahi has them.",
    )
    delay: Annotated[DurationNs | None, Sets("delay_ns")] = Field(
        None, le=DELAY_NS_MAX, description="One way, after the queue."
    )
    jitter: Annotated[JitterModel | None, _short_for("normal", "stddev"), Sets("jitter")] = Field(
        None, description="Added to the delay: a standard deviation, or a model with parameters."
    )
    queue: Annotated[Bytes | None, Sets("limit_bytes")] = Field(
        None,
        gt=0,
        le=QUEUE_BYTES_MAX,
        description="Bytes that may wait; more is dropped. Unset: 1MiB.",
    )
    ecn: Annotated[MarkingModel | None, _short_for("step", "threshold"), Sets("marking")] = Field(
        None, description="Marks by the queue: a threshold, or a model with parameters."
    )
    aqm: Annotated[AqmModel | None, _short_for(None, "model"), Sets("aqm")] = Field(
        None,
        description="Active queue management: codel, fq-codel or pie, or a model with parameters. "
        "`queue` remains the limit. Not beside ecn and trim.",
    )
    classes: Annotated[
        Annotated[list[TrafficClass], Field(min_length=1, max_length=CLASSES_MAX)] | None,
        Sets("classes"),
    ] = Field(
        None,
        description="Queues that take turns, strict or by weight, and which packets go into "
        "which. ecn marks by the queue of the class. Not beside aqm and trim.",
    )
    policer: Annotated[PolicerBucket | None, Sets("policer")] = Field(
        None, description="A token bucket before the queue: {rate: 500mbit, burst: 64KiB}."
    )
    reorder: Annotated[
        Reordering | None, _short_for(None, "share"), Sets("reorder", "reorder_ns")
    ] = Field(None, description="Share of packets held back, by 500us or as told.")
    duplicate: Annotated[Probability | None, Sets("duplicate")] = Field(
        None, description="Share of packets that arrive twice."
    )
    trim: Annotated[bool | None, Sets("trim")] = Field(
        None,
        description="Cut the payload off packets of ours that the queue would drop, and send the "
        "headers on, before what waits (NDP).",
    )
    telemetry: Annotated[bool | None, Sets("telemetry")] = Field(
        None,
        description="Write queue length, bytes sent, time and rate into packets of ours that "
        "have room for it (HPCC).",
    )

    @model_validator(mode="after")
    def _each_packet_has_a_class(self) -> LinkSettings:
        if self.classes is not None:
            check_classes(self.classes)
        return self

    @model_validator(mode="after")
    def _one_rate(self) -> LinkSettings:
        if self.trace is None:
            return self
        if self.rate is not None:
            raise ValueError("rate and trace exclude each other")
        if self.trace[0] < 0 or sorted(self.trace) != self.trace or not self.trace[-1]:
            raise ValueError("trace: milliseconds that do not fall, the last one above 0")
        if self.trace[-1] > TRACE_MS_MAX:
            raise ValueError(
                f"trace: {self.trace[-1]} milliseconds, and {TRACE_MS_MAX} (49 days) are the most; "
                "are these microseconds or nanoseconds?"
            )
        return self


LINK_KEYS = tuple(LinkSettings.model_fields)

_UNSET: Mapping[str, Any] = {"rate_bps": 0, "delay_ns": 0, "limit_bytes": QUEUE_BYTES}


_EXCLUDING = (("aqm", "ecn"), ("aqm", "trim"), ("aqm", "classes"), ("trim", "classes"))


def excluding(settings: Mapping[str, Any]) -> tuple[str, str] | None:
    """Two keys of LINK_KEYS with values that exclude each other."""
    return next((two for two in _EXCLUDING if all(settings[key] for key in two)), None)


def link_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of Link, of values by key of LINK_KEYS; None: unset."""
    arguments = dict(_UNSET) | given_arguments(settings)
    impairments = tuple(one for one in arguments.get("impairments", ()) if one[1])
    return {**arguments, "impairments": impairments}


def given_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """As link_arguments(), without the values of keys that are not given.

    Impairments are those that are given, also as 0.
    """
    given = {key: value for key, value in settings.items() if value is not None}
    arguments: dict[str, Any] = {}
    for key, value in given.items():
        if key not in IMPAIRMENTS:
            arguments |= _set(key, value)
    impairments = tuple((name, given[name]) for name in IMPAIRMENTS if name in given)
    return arguments | ({"impairments": impairments} if impairments else {})


def sets(key: str) -> tuple[str, ...]:
    """The arguments of Link that a key sets."""
    if key in IMPAIRMENTS:
        return ("impairments",)
    (found,) = (one for one in LinkSettings.model_fields[key].metadata if isinstance(one, Sets))
    return found.arguments


def _set(key: str, value: Any) -> dict[str, Any]:
    names = sets(key)
    if isinstance(value, BaseModel):
        value = value.setting()  # type: ignore[attr-defined]
    elif isinstance(value, list):
        value = tuple(one.setting() if isinstance(one, TrafficClass) else one for one in value)
    return dict(zip(names, value, strict=True)) if len(names) > 1 else {names[0]: value}
