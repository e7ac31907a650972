# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The key `when` of an event: a condition in place of a time."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from datapath.lanes.graph_spec import NODE
from datapath.units import Bytes, DurationNs
from datapath.xdp.impair import Direction

Names = Annotated[
    list[str], Field(min_length=1), BeforeValidator(lambda v: [v] if isinstance(v, str) else v)
]

_KINDS = ("finished", "delivered", "queue", "event")


class Condition(BaseModel):
    """What has to be so before an event happens; it happens once."""

    model_config = ConfigDict(extra="forbid")

    finished: Names | None = Field(
        None, description="Groups of flows (workload traffic): all of their flows have ended."
    )
    delivered: Bytes | None = Field(
        None, gt=0, description="The flows have delivered so many bytes, all together."
    )
    flows: Names | None = Field(
        None, description="With delivered: groups of flows (workload traffic); unset: all flows."
    )
    queue: Bytes | None = Field(
        None, description="More than so many bytes have waited in the queue of a link at once."
    )
    link: str | None = Field(
        None, pattern=rf"^{NODE}>{NODE}$", description="With queue: the link, such as leaf0>spine1."
    )
    direction: Direction | None = Field(
        None, description="With queue, p2p and dumbbell: whose queue; unset: forward."
    )
    event: str | None = Field(None, description="Another event, named by its label, has happened.")
    later: DurationNs = Field(0, description="So long after the condition holds.")

    @model_validator(mode="after")
    def _one_thing(self) -> Condition:
        given = [key for key in _KINDS if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(
                f"a condition has one of {', '.join(_KINDS)}, not {len(given) or 'none'} of them"
            )
        if self.flows is not None and self.delivered is None:
            raise ValueError("flows goes with delivered")
        if self.queue is None and (self.link is not None or self.direction is not None):
            raise ValueError("link and direction go with queue")
        return self

    @property
    def groups(self) -> list[str]:
        """The groups of flows that it names."""
        return [*(self.finished or ()), *(self.flows or ())]

    @property
    def queue_name(self) -> str:
        """The link whose queue it is about, as networks name it."""
        return self.link or self.direction or "forward"

    @property
    def text(self) -> str:
        """What it is, in few words."""
        after = f" and {self.later / 1e6:g} ms" if self.later else ""
        if self.finished:
            return f"{', '.join(self.finished)} finished{after}"
        if self.delivered is not None:
            return f"{', '.join(self.flows or ['all'])} delivered {self.delivered} bytes{after}"
        if self.queue is not None:
            return f"queue of {self.queue_name} above {self.queue} bytes{after}"
        return f"{self.event}{after}"
