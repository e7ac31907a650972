# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The random loss of a `path` section, and the faults aimed at single packets."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from datapath.fabric.links import Loss as LinkLoss
from datapath.units import DurationNs, Probability
from datapath.xdp.impair import AimedFault, Direction


class Bernoulli(BaseModel):
    """Each packet is lost with the same probability, whatever happened before."""

    model_config = ConfigDict(extra="forbid")

    model: Literal["bernoulli"] = "bernoulli"
    rate: Probability = Field(description="Share of packets lost.")

    def setting(self) -> LinkLoss | None:
        return LinkLoss(good=self.rate) if self.rate else None

    def states(self) -> dict[str, Any]:
        """Its part of an Impairment."""
        return {"loss_good": self.rate}


_MeanTime = Annotated[DurationNs, Field(ge=1_000, le=3600 * 10**9)]


class GilbertElliott(BaseModel):
    """Bursty loss: a two-state Markov chain, stepped once for each packet (Elliott, 1963).

    The long-run share of packets in the bad state is p / (p + r), and the
    mean length of a bad period is 1 / r packets.
    """

    model_config = ConfigDict(extra="forbid")

    model: Literal["gilbert-elliott"] = "gilbert-elliott"
    p: Probability = Field(description="Probability of going from the good state to the bad one.")
    r: Probability = Field(description="Probability of going from the bad state to the good one.")
    good: Probability = Field(0.0, description="Share of packets lost in the good state.")
    bad: Probability = Field(1.0, description="Share of packets lost in the bad state.")

    def setting(self) -> LinkLoss:
        return LinkLoss(p=self.p, r=self.r, good=self.good, bad=self.bad)

    def states(self) -> dict[str, Any]:
        """Its part of an Impairment."""
        lost = {"loss_good": self.good, "loss_bad": self.bad}
        return {"to_bad": self.p, "to_good": self.r, **lost}


class GilbertElliottTime(BaseModel):
    """Bursty loss by time: good and bad periods of random length, whatever is sent.

    A two-state Markov chain in continuous time.  The long-run share of time in the bad state is
    bad_time / (good_time + bad_time).
    """

    model_config = ConfigDict(extra="forbid")

    model: Literal["gilbert-elliott-time"] = "gilbert-elliott-time"
    good_time: _MeanTime = Field(description="Mean length of a good period.")
    bad_time: _MeanTime = Field(description="Mean length of a bad period.")
    good: Probability = Field(0.0, description="Share of packets lost in a good period.")
    bad: Probability = Field(1.0, description="Share of packets lost in a bad period.")

    def setting(self) -> LinkLoss:
        return LinkLoss(self.good, self.bad, good_ns=self.good_time, bad_ns=self.bad_time)

    def states(self) -> dict[str, Any]:
        """Its part of an Impairment."""
        lost = {"loss_good": self.good, "loss_bad": self.bad}
        return {"good_ns": self.good_time, "bad_ns": self.bad_time, **lost}


def _loss_from_scalar(value: Any) -> Any:
    """`1%` is short for `{model: bernoulli, rate: 1%}`."""
    if isinstance(value, (BaseModel, dict)):
        return {"model": "bernoulli", **value} if isinstance(value, dict) else value
    return {"model": "bernoulli", "rate": value}


LossModel = Bernoulli | GilbertElliott | GilbertElliottTime


Loss = Annotated[LossModel, Field(discriminator="model"), BeforeValidator(_loss_from_scalar)]


NO_LOSS = Bernoulli(rate=0.0)


class Fault(BaseModel):
    """One aimed fault: the packets it matches are counted, and `count` of them are hit.

    A fault with `qpn` or `psn` matches RoCE packets (UDP port 4791) with that
    destination QPN and PSN; one without them matches every IP packet.
    """

    model_config = ConfigDict(extra="forbid")

    direction: Direction = Field("forward", description="Which way the packet travels.")
    action: Literal["drop", "mark", "corrupt"] = Field(description="What happens to the packet.")
    nth: int | None = Field(
        None, ge=1, description="Hit the n-th matching packet (the first one is 1)."
    )
    qpn: int | None = Field(None, ge=0, le=0xFFFFFF, description="Destination QPN in the BTH.")
    psn: int | None = Field(None, ge=0, le=0xFFFFFF, description="PSN in the BTH.")
    count: int = Field(1, ge=1, le=2**32 - 1, description="How many matching packets are hit.")

    def aimed(self) -> AimedFault:
        return AimedFault(self.action, self.qpn, self.psn, self.nth or 1, self.count)

    @model_validator(mode="after")
    def _is_aimed(self) -> Fault:
        if self.nth is None and self.qpn is None and self.psn is None:
            raise ValueError("a fault needs a target: nth, qpn or psn (or several of them)")
        return self
