# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Priority flow control of a topology's switches."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from datapath.fabric.links import QUEUE_BYTES_MAX
from datapath.units import Bytes


class Pfc(BaseModel):
    """Priority flow control (IEEE 802.1Qbb): a switch pauses who sends faster than it can forward.

    What is set holds for each port of each switch.
    """

    model_config = ConfigDict(extra="forbid")

    xoff: Bytes | None = Field(
        None,
        ge=1,
        le=QUEUE_BYTES_MAX,
        description="Bytes that wait of what came in by a port, above which its peer is paused. "
        "Unset: the port's equal part of the buffer, less its headroom.",
    )
    xon: Bytes | None = Field(
        None,
        le=QUEUE_BYTES_MAX,
        description="Bytes down to which it stays paused. Unset: two packets below xoff.",
    )
    headroom: Bytes | None = Field(
        None,
        le=QUEUE_BYTES_MAX,
        description="Room of a port alone, for what still arrives once its peer is paused. "
        "Unset: as much as rate, delay and MTU of the links ask for; with less, packets are lost.",
    )
