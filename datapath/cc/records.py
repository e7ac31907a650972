# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The records that pass between the transport and an algorithm.

The classes are the Python view of `datapath/engine/cc.h`: every member is eight
bytes wide and stands in the order of the C struct.  They are the one place
that names and explains the members; numpy dtypes, the static checker, the
documentation and the tests are made from them.  An algorithm may inherit from
`Flow` to tell editors and type checkers what `flow` holds; it need not.

numpy is imported on use, because a cache hit of the compiler needs none.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

if TYPE_CHECKING:
    import numpy as np

CC_ABI = 11  # DP_CC_ABI
HOPS_MAX = 8  # DP_CC_HOPS_MAX
FLOW_BYTES_MAX = 1024  # DP_CC_FLOW_BYTES_MAX
MEMBER_BYTES = 8


class Flow:
    """Head of a flow record; the algorithm's parameters and state follow it."""

    cwnd_bytes: Annotated[
        float, "set by the algorithm: congestion window; under one packet it is paced over RTTs"
    ]
    pacing_rate_bps: Annotated[float, "set by the algorithm: pacing rate, bit/s; 0: not paced"]
    next_path: Annotated[
        float,
        "set by the algorithm: path of the packets that it lets out, 0 to paths - 1; "
        "-1: taken in turn",
    ]
    unscheduled_bytes: Annotated[
        float, "set by the algorithm: may be in flight without a grant, where grants are needed"
    ]
    wake_ns: Annotated[float, "set by the algorithm: when `on_wake` is called; 0: not"]
    mss_bytes: Annotated[float, "payload of a full packet"]
    line_rate_bps: Annotated[float, "rate of the port, bit/s; 0: not known, as on veth"]
    max_cwnd_bytes: Annotated[float, "the largest window that the transport can track"]
    min_rtt_ns: Annotated[float, "lowest RTT, believed for 10 s, then measured anew; 0: none yet"]
    srtt_ns: Annotated[float, "smoothed RTT, RFC 6298; 0: none yet"]
    host_ns: Annotated[float, "time that the two hosts add to the RTT, smoothed the same way"]
    inflight_bytes: Annotated[float, "sent and neither acknowledged nor declared lost"]
    delivered_bytes: Annotated[float, "acknowledged since the connection was made"]
    now_ns: Annotated[float, "the transport's clock"]
    paths: Annotated[float, "that packets may take, 1 to 64"]
    needs_grants: Annotated[float, "1: the receiver gives grants, and only these may be sent"]


class Hop:
    """One record of in-band telemetry (HPCC, SIGCOMM 2019, section 3.1)."""

    queue_bytes: Annotated[float, "length of the egress queue"]
    tx_bytes: Annotated[float, "bytes that the egress port has sent"]
    ts_ns: Annotated[float, "the hop's clock when the packet left"]
    rate_bps: Annotated[float, "rate of the egress port, bit/s"]


class Ack:
    """An acknowledgement that delivered something or carried a mark."""

    now_ns: Annotated[float, "when it arrived"]
    rtt_ns: Annotated[
        float,
        "RTT sample of the newest packet acknowledged, without the time in the two hosts; 0: none",
    ]
    host_ns: Annotated[float, "the time in the two hosts, which comes on top of `rtt_ns`"]
    back_ns: Annotated[
        float, "the part of `rtt_ns` in queues of the return path; 0: none, or not known"
    ]
    acked_bytes: Annotated[float, "newly delivered"]
    marked_bytes: Annotated[float, "part of `acked_bytes` that arrived with CE"]
    lost_bytes: Annotated[float, "declared lost since the previous on_ack"]
    inflight_bytes: Annotated[float, "in flight after this acknowledgement"]
    delivered_bytes: Annotated[float, "total delivered, after it"]
    prior_delivered_bytes: Annotated[
        float, "total delivered when the newest packet acknowledged was sent"
    ]
    delivery_rate_bps: Annotated[
        float, "delivery rate sample, bit/s (draft-cheng-iccrg-delivery-rate-estimation); 0: none"
    ]
    app_limited: Annotated[float, "1: the application, not the window, limited that sample"]
    credit_bytes: Annotated[float, "granted by the receiver and not sent yet; 0: none"]
    path: Annotated[
        float, "path of the delivered packets; who reads it is called once for each path"
    ]
    n_hops: Annotated[float, "telemetry records in `hop`"]
    hop: Annotated[Sequence[Hop], "telemetry, first hop first"]


class Loss:
    """Packets declared lost, by order, time or the peer's word."""

    now_ns: Annotated[float, "when it was noticed"]
    lost_bytes: Annotated[float, "declared lost"]
    inflight_bytes: Annotated[float, "in flight after the loss was taken off"]
    prior_delivered_bytes: Annotated[float, "total delivered when the lost packet was sent"]
    path: Annotated[float, "path that the packet had taken"]
    trimmed: Annotated[float, "1: a switch cut the payload off, and the receiver told"]


class _Own:
    """A record that has members of the algorithm's own, by names that only its class knows."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> float: ...
        def __setattr__(self, name: str, value: float) -> None: ...


class Port(_Own):
    """At the receiver: one record for all flows that come in; parameters and state follow."""

    timer_ns: Annotated[float, "set by the algorithm: when `on_timer` is called; 0: not"]
    now_ns: Annotated[float, "the transport's clock"]
    line_rate_bps: Annotated[float, "rate of the port, bit/s; 0: not known, as on veth"]
    n_senders: Annotated[float, "flows that want more than has arrived"]


class Sender(_Own):
    """At the receiver: a flow that comes in; the algorithm's state follows."""

    granted_bytes: Annotated[
        float,
        "set by the algorithm: may have been sent; never falls, nor exceeds `wanted_bytes`",
    ]
    credits: Annotated[
        float, "set by the algorithm: credits sent to it, each for one packet; never falls"
    ]
    dscp: Annotated[
        float,
        "set by the algorithm: DSCP of the packets that it sends by the next grant; "
        "-1: that of its QP",
    ]
    wanted_bytes: Annotated[float, "sent, and wanted to be sent"]
    arrived_bytes: Annotated[float, "arrived, or known to be lost"]
    heard_ns: Annotated[float, "when its last packet came"]
    rtt_ns: Annotated[
        float, "lowest time from its DEMAND to the GRANT, hosts included; 0: not known"
    ]
    mss_bytes: Annotated[float, "payload of its longest packet so far"]
    credits_told: Annotated[float, "number of the newest credit that it told to have received"]
    credits_heard: Annotated[float, "how many credits it had received then"]


class Data:
    """At the receiver: a packet of data that has arrived."""

    now_ns: Annotated[float, "when it was read"]
    bytes: Annotated[float, "payload that had not arrived before"]
    marked: Annotated[float, "1: it came with CE"]
    trimmed: Annotated[float, "1: a switch cut its payload off"]
    n_hops: Annotated[float, "telemetry records in `hop`"]
    hop: Annotated[Sequence[Hop], "telemetry, first hop first"]


WRITABLE = {
    "flow": ("cwnd_bytes", "pacing_rate_bps", "next_path", "unscheduled_bytes", "wake_ns"),
    "port": ("timer_ns",),
    "sender": ("granted_bytes", "credits", "dscp"),
}
"""The members of each record's head that an algorithm sets."""


def describe(record: type) -> dict[str, str]:
    """Member names of a record in the order of the C struct, each with its meaning."""
    hints = get_type_hints(record, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


FLOW_MEMBERS = describe(Flow)
ACK_MEMBERS = describe(Ack)
LOSS_MEMBERS = describe(Loss)
HOP_MEMBERS = describe(Hop)
DATA_MEMBERS = describe(Data)
HEADS = {"flow": FLOW_MEMBERS, "port": describe(Port), "sender": describe(Sender)}
"""Members of the records that parameters or state of an algorithm follow."""


def hop_dtype() -> "np.dtype[Any]":
    """dtype of `struct dp_cc_hop`."""
    return _dtype((name, "f8") for name in HOP_MEMBERS)


def ack_dtype() -> "np.dtype[Any]":
    """dtype of `struct dp_cc_ack`, the array of hops included."""
    return _dtype(_with_hops(ACK_MEMBERS))


def loss_dtype() -> "np.dtype[Any]":
    """dtype of `struct dp_cc_loss`."""
    return _dtype((name, "f8") for name in LOSS_MEMBERS)


def data_dtype() -> "np.dtype[Any]":
    """dtype of `struct dp_cc_data`, the array of hops included."""
    return _dtype(_with_hops(DATA_MEMBERS))


def head_dtype(record: str, fields: Iterable[tuple[Any, ...]] = ()) -> "np.dtype[Any]":
    """dtype of a "flow", "port" or "sender": its head, then `fields` as (name, kind[, shape])."""
    return _dtype([*((name, "f8") for name in HEADS[record]), *fields])


def _with_hops(members: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    hops = ("hop", hop_dtype(), (HOPS_MAX,))
    return (hops if name == "hop" else (name, "f8") for name in members)


def _dtype(members: Iterable[Any]) -> "np.dtype[Any]":
    import numpy as np

    return np.dtype(list(members), align=True)
