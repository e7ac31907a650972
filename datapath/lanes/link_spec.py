# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What of a `path` section only a link model can do: rate, delay, queue and what spoils a wire."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from datapath import foreign
from datapath.fabric.links import Jitter, Marking
from datapath.units import BitRate, Bytes, DurationNs, Fraction

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
    stddev: DurationNs = Field(description="Standard deviation.")
    reorders: bool = Field(False, description="Whether a frame may overtake another.")

    def setting(self) -> Jitter:
        return Jitter("normal", scale_ns=float(self.stddev), reorders=self.reorders)


class ParetoJitter(BaseModel):
    """Added to the delay, with a heavy tail: P(X > x) = (1 + x / s)^-shape (Pareto, type II)."""

    model_config = ConfigDict(extra="forbid")

    model: Literal["pareto"] = "pareto"
    mean: DurationNs = Field(description="Mean of what is added.")
    shape: float = Field(3.0, gt=1, le=100, description="Tail index: smaller is heavier.")
    reorders: bool = Field(False, description="Whether a frame may overtake another.")

    def setting(self) -> Jitter:
        return Jitter("pareto", scale_ns=float(self.mean), shape=self.shape, reorders=self.reorders)


class TraceJitter(BaseModel):
    """Added to the delay, frame by frame, from a list that is repeated."""

    model_config = ConfigDict(extra="forbid")

    model: Literal["trace"] = "trace"
    samples: Annotated[
        list[DurationNs],
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
    threshold: Bytes = Field(description="Bytes that wait, the packet under way not counted.")

    def setting(self) -> Marking:
        return Marking("step", kmin_bytes=self.threshold)


class RedMarking(BaseModel):
    """CE with a probability that rises with the queue as it is now (DCQCN, figure 5)."""

    model_config = ConfigDict(extra="forbid")

    model: Literal["red"] = "red"
    min: Bytes = Field(description="Bytes up to which nothing is marked.")
    max: Bytes = Field(description="Bytes from which everything is marked.")
    probability: Fraction = Field(description="Just below max.")

    @model_validator(mode="after")
    def _ordered(self) -> RedMarking:
        if self.min > self.max:
            raise ValueError("min is larger than max")
        return self

    def setting(self) -> Marking:
        return Marking("red", kmin_bytes=self.min, kmax_bytes=self.max, pmax=self.probability)


class Reordering(BaseModel):
    """A share of packets is held back for a while, so that others overtake them."""

    model_config = ConfigDict(extra="forbid")

    share: Fraction = Field(description="Share of packets.")
    by: DurationNs = Field(500_000, description="How long.")


JitterModel = Annotated[NormalJitter | ParetoJitter | TraceJitter, Field(discriminator="model")]
MarkingModel = Annotated[StepMarking | RedMarking, Field(discriminator="model")]


class LinkSettings(BaseModel):
    """Keys of `path` and of its directions that need a link model; unset: not done."""

    model_config = ConfigDict(extra="forbid")

    rate: BitRate | None = Field(
        None, ge=1000, description="Of the link, everything on an Ethernet wire counted."
    )
    trace: Annotated[
        Annotated[list[int], Field(min_length=1)] | None,
        BeforeValidator(_numbers_of_file),
        _list_or_file({"type": "integer"}),
    ] = Field(
        None,
        description="In place of rate: milliseconds at which a packet of 1500 bytes may leave, "
        "repeated; or the name of such a file, as mahimahi has them.",
    )
    delay: DurationNs | None = Field(None, le=10 * 10**9, description="One way, after the queue.")
    jitter: Annotated[JitterModel | None, _short_for("normal", "stddev")] = Field(
        None, description="Added to the delay: a standard deviation, or a model with parameters."
    )
    queue: Bytes | None = Field(
        None, gt=0, description="Bytes that may wait; more is dropped. Unset: 1MiB."
    )
    ecn: Annotated[MarkingModel | None, _short_for("step", "threshold")] = Field(
        None, description="Marks by the queue: a threshold, or a model with parameters."
    )
    reorder: Annotated[Reordering | None, _short_for(None, "share")] = Field(
        None, description="Share of packets held back, by 500us or as told."
    )
    duplicate: Fraction | None = Field(None, description="Share of packets that arrive twice.")
    trim: bool | None = Field(
        None,
        description="Cut the payload off packets of ours that the queue would drop, and send the "
        "headers on, before what waits (NDP).",
    )
    telemetry: bool | None = Field(
        None,
        description="Write queue length, bytes sent, time and rate into packets of ours that "
        "have room for it (HPCC).",
    )

    @model_validator(mode="after")
    def _one_rate(self) -> LinkSettings:
        if self.trace is None:
            return self
        if self.rate is not None:
            raise ValueError("rate and trace exclude each other")
        if self.trace[0] < 0 or sorted(self.trace) != self.trace or not self.trace[-1]:
            raise ValueError("trace: milliseconds that do not fall, the last one above 0")
        return self


LINK_KEYS = tuple(LinkSettings.model_fields)
