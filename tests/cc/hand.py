# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One flow of an algorithm, given acknowledgements and losses by hand."""

from __future__ import annotations

from collections.abc import Sequence

from datapath.cc import compile_algorithm
from datapath.cc.drivers import NativeAlgorithm, new_ack, new_loss

MSS = 4096.0
Hop = tuple[float, float, float, float]
"""queue_bytes, tx_bytes, ts_ns, rate_bps."""


class Hand:
    """Plays the transport: keeps time and totals, calls the compiled algorithm."""

    def __init__(
        self,
        name: str,
        *,
        line_rate_bps: float = 10e9,
        min_rtt_ns: float = 0,
        srtt_ns: float = 0,
        max_packets: float = 4096,
        paths: int = 1,
        **params: float,
    ) -> None:
        self.driver = NativeAlgorithm(compile_algorithm(name, params))
        self.flow = self.driver.flow
        self.now_ns = 1e9
        self.flow.mss_bytes, self.flow.max_cwnd_bytes = MSS, max_packets * MSS
        self.flow.line_rate_bps = line_rate_bps
        self.flow.min_rtt_ns, self.flow.srtt_ns = min_rtt_ns, srtt_ns
        self.flow.now_ns, self.flow.next_path, self.flow.paths = self.now_ns, -1, paths
        self.driver.on_init()

    def ack(
        self,
        packets: float = 1,
        *,
        wait_ns: float = 0,
        rtt_ns: float = 0,
        marked: float = 0,
        lost: float = 0,
        inflight: float | None = None,
        prior: float | None = None,
        rate_bps: float = 0,
        hops: Sequence[Hop] = (),
        path: int = 0,
        app_limited: bool = False,
    ) -> float:
        """Acknowledge packets; the window after it, in packets.

        marked: share of them with CE.  lost: packets declared lost before it.  inflight: packets
        after it, unset: the rest of the window.  prior: total delivered, in packets, when the
        newest of them was sent, unset: all that was delivered before, so a round ends.
        """
        self._pass(wait_ns)
        size = packets * MSS
        before = float(self.flow.delivered_bytes)
        rest = max(float(self.flow.cwnd_bytes) - size, 0.0)
        after = rest if inflight is None else inflight * MSS
        self.flow.delivered_bytes, self.flow.inflight_bytes = before + size, after
        if rtt_ns:
            self.flow.min_rtt_ns = min(float(self.flow.min_rtt_ns) or rtt_ns, rtt_ns)
            self.flow.srtt_ns = rtt_ns
        record = new_ack(
            now_ns=self.now_ns,
            rtt_ns=rtt_ns,
            acked_bytes=size,
            marked_bytes=marked * size,
            lost_bytes=lost * MSS,
            inflight_bytes=after,
            delivered_bytes=before + size,
            prior_delivered_bytes=before if prior is None else prior * MSS,
            delivery_rate_bps=rate_bps,
            app_limited=float(app_limited),
            path=path,
            n_hops=len(hops),
        )
        for at, hop in enumerate(hops):
            one = record.hop[at]
            one.queue_bytes, one.tx_bytes, one.ts_ns, one.rate_bps = hop
        self.driver.on_ack(record)
        return self.packets

    def window(self, *, marked: float = 0, rtt_ns: float = 0, use: float = 1) -> float:
        """Acknowledge all that the window let out, at once."""
        return self.ack(self.packets * use, marked=marked, rtt_ns=rtt_ns, inflight=0)

    def lose(
        self,
        packets: float = 1,
        *,
        wait_ns: float = 0,
        prior: float | None = None,
        inflight: float | None = None,
        path: int = 0,
    ) -> float:
        """Declare packets lost; `prior` as for ack(), unset: sent after the last delivery."""
        self._pass(wait_ns)
        rest = max(float(self.flow.cwnd_bytes) - packets * MSS, 0.0)
        loss = new_loss(
            now_ns=self.now_ns,
            lost_bytes=packets * MSS,
            inflight_bytes=rest if inflight is None else inflight * MSS,
            prior_delivered_bytes=(
                float(self.flow.delivered_bytes) if prior is None else prior * MSS
            ),
            path=path,
        )
        self.driver.on_loss(loss)
        return self.packets

    def timeout(self, *, wait_ns: float = 0) -> float:
        self._pass(wait_ns)
        self.driver.on_timeout(self.now_ns)
        return self.packets

    def cnp(self, *, wait_ns: float = 0) -> float:
        """A CNP; the rate after it."""
        self._pass(wait_ns)
        self.driver.on_cnp(self.now_ns)
        return self.rate_bps

    @property
    def packets(self) -> float:
        """The window."""
        return float(self.flow.cwnd_bytes) / MSS

    @property
    def delivered(self) -> float:
        """Total, in packets."""
        return float(self.flow.delivered_bytes) / MSS

    @property
    def rate_bps(self) -> float:
        return float(self.flow.pacing_rate_bps)

    def _pass(self, wait_ns: float) -> None:
        self.now_ns += wait_ns
        self.flow.now_ns = self.now_ns
