# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The links of a path as telemetry tells of them, for flows that compare a record with the last."""

from typing import TYPE_CHECKING

from datapath.cc import Ack, Hop

if TYPE_CHECKING:
    from typing import Protocol

    class Watching(Protocol):
        """The members of a flow that keeps records: the arrays have HOPS elements."""

        paths: float
        known_hops: int
        hop_path: int
        noted_ns: float
        hop_queue_bytes: list[float]
        hop_tx_bytes: list[float]
        hop_ts_ns: list[float]
        hop_rate_bps: list[float]


BITS_NS = 8e9  # bytes per ns to bit/s
HOPS = 8
MOST_LOAD = 2.0  # of a link's rate, by two records of it
PACKETS_BYTES = 20_000.0  # two long packets, which the two records may contain or not


def watches(flow: "Watching", ack: Ack, rtt_ns: float) -> bool:
    """Whether an acknowledgement is of the path whose records are kept.

    A flow over several paths watches one of them, and another one when that has been silent for so
    many RTTs as there are paths.
    """
    silent = ack.now_ns - flow.noted_ns > flow.paths * rtt_ns
    if ack.path != flow.hop_path and (silent or flow.known_hops == 0):
        flow.hop_path, flow.known_hops = int(ack.path), 0
    return ack.path == flow.hop_path


def is_known(flow: "Watching", hop: Hop, i: int) -> bool:
    """Whether a record can be of the same link as the last one, by what a link can do.

    It is of another one where the path of the flow has changed.
    """
    elapsed_ns = hop.ts_ns - flow.hop_ts_ns[i]
    sent_bytes = hop.tx_bytes - flow.hop_tx_bytes[i]
    if elapsed_ns <= 0 or sent_bytes < 0 or hop.rate_bps <= 0:
        return False
    most_bytes = MOST_LOAD * hop.rate_bps * elapsed_ns / BITS_NS + PACKETS_BYTES
    return hop.rate_bps == flow.hop_rate_bps[i] and sent_bytes <= most_bytes


def note_links(flow: "Watching", ack: Ack, hops: int) -> None:
    """Keep the records of this acknowledgement."""
    for i in range(hops):
        hop = ack.hop[i]
        flow.hop_queue_bytes[i] = hop.queue_bytes
        flow.hop_tx_bytes[i] = hop.tx_bytes
        flow.hop_ts_ns[i] = hop.ts_ns
        flow.hop_rate_bps[i] = hop.rate_bps
    flow.known_hops = hops
    flow.noted_ns = ack.now_ns
