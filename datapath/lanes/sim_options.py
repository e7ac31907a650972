# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The `transport` section as options of simulated engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from datapath.verbs import sizes

if TYPE_CHECKING:
    from datapath.fabric.engine_options import EngineOptions
    from datapath.fabric.links import QueueClass
    from datapath.verbs.spec import Transport


def engine_options(
    transport: Transport,
    mtu: int,
    line_rate_bps: int,
    *,
    data_class: int = 0,
    classes: Sequence[QueueClass] = (),
    preset: bool = True,
) -> EngineOptions:
    """The engine's options of a `transport` section, as devices of live lanes have them.

    classes: of the links, where packets have them by their DSCP.  preset: no QP has to find out
    what its path carries.
    """
    from datapath.fabric.engine_options import EngineOptions
    from datapath.fabric.links import class_of_credits, classes_by_dscp, ranks_by_dscp

    options = transport.options
    names = {"retry_count": "retry_cnt", "ack_timeout": "timeout", "rnr_retry": "rnr_retry"}
    given = transport.qp_attributes().items()
    of_qps: dict[str, Any] = {names[name]: value for name, value in given}
    path_mtu = sizes.path_mtu(mtu, transport.path_mtu)
    return EngineOptions(
        path_mtu=path_mtu,
        extended=transport.mode == "auto",
        preset=preset,
        ecn=transport.ecn,
        window_psns=options.window or 0,
        min_rto_ns=options.min_rto or 0,
        cnp_ns=options.cnp or 0,
        segment_max=sizes.segment(
            mtu,
            path_mtu,
            asked=options.segment or 0,
            afxdp=transport.port == "afxdp",
            room=sizes.telemetry_room() if options.telemetry else 0,
        ),
        paths=options.paths,
        telemetry=options.telemetry,
        line_rate_bps=line_rate_bps,
        data_class=data_class,
        class_of_dscp=classes_by_dscp(classes),
        rank_of_dscp=ranks_by_dscp(classes),
        credit_class=class_of_credits(classes),
        **of_qps,
    )


def has_room_for_telemetry(transport: Transport, mtu: int) -> bool:
    """Whether an Ethernet MTU carries the path MTU and the records of switches beside it."""

    options = engine_options(transport, mtu, 0)
    return options.segment_max >= options.path_mtu + sizes.telemetry_room()
