# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Options of the engines of a simulation's hosts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from datapath.fabric.members import U8_MAX, U32_MAX, WholeNumbers


@dataclass(frozen=True)
class EngineOptions(WholeNumbers):
    """The engines of all hosts, and how their QPs are set up.

    path_mtu: payload of a full packet, bytes.  extended: offer the extended mode; preset: both
    ends begin in it, so that no exchange is needed.  ecn: packets are ECN-capable.
    window_psns, min_rto_ns: 0: the engine's defaults.  segment_max: payload of a packet in
    extended mode that is longer than path_mtu, 0: none is.  paths: UDP source ports that packets
    of a QP take.  telemetry: room for the records that links with telemetry stamp.
    line_rate_bps: told to algorithms, 0: that of the first host's link.  cnp_ns: least time between
    two CNPs that a QP sends for marked packets, 0: it sends none.  timeout, retry_cnt,
    rnr_retry, min_rnr_timer: as in ibv_qp_attr.  data_class, control_class: queue (class) of
    packets with payload, and of those without.  class_of_dscp: in their place, the class by the
    DSCP of the flow, shape (64,).  rank_of_dscp: QPs of a host send in the order of these numbers,
    and in turn where they are equal; (): all are.  credit_class: that of CREDIT packets; None: as
    others.  With a class of their own they take the path of their data backwards.
    """

    at_most: ClassVar[Mapping[str, int]] = {
        **dict.fromkeys(("path_mtu", "window_psns", "segment_max"), U32_MAX),
        **dict.fromkeys(("paths", "timeout", "retry_cnt", "rnr_retry", "min_rnr_timer"), U8_MAX),
        **dict.fromkeys(("data_class", "control_class"), U8_MAX),
    }

    path_mtu: int = 4096
    extended: bool = True
    preset: bool = True
    ecn: bool = True
    window_psns: int = 0
    min_rto_ns: int = 0
    segment_max: int = 0
    paths: int = 1
    telemetry: bool = False
    line_rate_bps: int = 0
    cnp_ns: int = 0
    timeout: int = 14
    retry_cnt: int = 7
    rnr_retry: int = 7
    min_rnr_timer: int = 12
    data_class: int = 0
    control_class: int = 0
    class_of_dscp: tuple[int, ...] = ()
    rank_of_dscp: tuple[int, ...] = ()
    credit_class: int | None = None
