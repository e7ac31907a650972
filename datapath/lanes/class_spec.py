# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The classes of a link: queues that take turns, and which packets go into which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from datapath.errors import LocalError
from datapath.fabric.links import QUEUE_BYTES_MAX, Link, QueueClass
from datapath.units import Bytes, Fraction

_TRIMMED = 43
"""The DSCP by which switches tell that they have cut a packet: wire/trim.h."""

Dscp = Annotated[int, Field(ge=0, le=63)]


class TrafficClass(BaseModel):
    """A queue of a link, and which packets go into it."""

    model_config = ConfigDict(extra="forbid")

    dscp: Annotated[list[Dscp], BeforeValidator(lambda v: [v] if isinstance(v, int) else v)] = (
        Field(
            default_factory=list,
            description="DSCPs of its packets, 0 to 63: a number or a list. One class has none and "
            "and takes the packets that no other class names.",
        )
    )
    credits: bool = Field(
        False, description="It takes the CREDIT packets of receivers (congestion control)."
    )
    weight: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="Share of the link among the classes that wait and have a weight. Unset: "
        "strict priority over all classes behind it, and over all with a weight.",
    )
    queue: Bytes | None = Field(
        None,
        gt=0,
        le=QUEUE_BYTES_MAX,
        description="Bytes that may wait in it, within the link's queue. Unset: all.",
    )
    share: Fraction | None = Field(
        None, gt=0, description="Shaped to this share of the link's rate. Unset: not shaped."
    )
    jitter: Fraction = Field(
        0.0, description="With share: by how much the time between two packets varies."
    )
    lossless: bool = Field(
        False, description="sim, with topology.pfc: switches pause it and drop nothing of it."
    )

    @model_validator(mode="after")
    def _consistent(self) -> TrafficClass:
        if self.dscp and self.credits:
            raise ValueError("a class has dscp or credits, not both")
        if _TRIMMED in self.dscp:
            raise ValueError(f"dscp {_TRIMMED} is that of trimmed packets")
        if self.jitter and self.share is None:
            raise ValueError("jitter goes with share")
        if self.lossless and (self.queue is not None or self.share is not None):
            raise ValueError("a lossless class drops nothing: give it no queue and no share")
        return self

    def setting(self) -> QueueClass:
        return QueueClass(
            weight=self.weight or 0,
            limit_bytes=self.queue or 0,
            share=self.share or 0.0,
            jitter=self.jitter,
            dscp=tuple(self.dscp),
            credits=self.credits,
            lossless=self.lossless,
        )


def check_classes(classes: Sequence[TrafficClass]) -> None:
    """ValueError for classes among which a packet would have none, or several."""
    twice = [d for d, n in Counter(d for one in classes for d in one.dscp).items() if n > 1]
    if twice:
        raise ValueError(f"classes: dscp {twice[0]} stands there twice")
    if sum(one.credits for one in classes) > 1:
        raise ValueError("classes: one class takes the credits, not several")
    others = sum(not one.dscp and not one.credits for one in classes)
    if others != 1:
        raise ValueError(
            f"classes: exactly one has neither dscp nor credits, for all other packets; {others} do"
        )


def refuse_differing(links: Iterable[Link]) -> None:
    """LocalError for a network in which a packet would change its class on the way."""
    found: set[tuple[object, ...]] = set()
    for link in links:
        if any(one.dscp or one.credits for one in link.classes):
            found.add(tuple((one.dscp, one.credits, one.lossless) for one in link.classes))
    if len(found) > 1:
        raise LocalError(
            "path.classes: a packet has the same class on all links",
            hint="links may have other weights, queues and shares, for the same dscp, credits "
            "and lossless in the same order",
        )


def pfc_mask(classes: Sequence[QueueClass]) -> int:
    """The lossless classes; LocalError when there is none."""
    mask = sum(1 << index for index, one in enumerate(classes) if one.lossless)
    if not mask:
        raise LocalError(
            "topology.pfc: no class of path.classes is lossless",
            hint="give one of them lossless: true",
        )
    return mask
