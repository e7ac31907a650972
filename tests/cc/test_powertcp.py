# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""powertcp against algorithms 1 and 2 of Addanki et al. (NSDI 2022)."""

from __future__ import annotations

import pytest

from .hand import Hand

LINE = 100e9
TAU = 10_000.0  # ns; BDP 125000 bytes
BDP = LINE * TAU / 8e9
BETA = 1000.0
GAMMA = 0.9


class Path:
    """One hop whose counters move as told."""

    def __init__(self, **params: float) -> None:
        told = {"line_rate_bps": LINE, "base_rtt_ns": TAU, "beta_bytes": BETA} | params
        self.hand = Hand("powertcp", **told)
        self.tx_bytes, self.ts_ns = 0.0, 0.0
        self.ack(load=0)  # the first record is only noted

    def hold(self, cwnd_bytes: float) -> None:
        """It has had this window for long."""
        flow = self.hand.flow
        flow.cwnd_bytes = flow.past_cwnd_bytes[:] = cwnd_bytes

    def ack(
        self,
        load: float,
        queue: float = 0,
        after_ns: float = TAU,
        prior: float | None = None,
        rate_bps: float = LINE,
        rtt_ns: float = TAU,
    ) -> float:
        """An acknowledgement: the link sent at `load` of its rate and has `queue` BDPs waiting."""
        self.ts_ns += after_ns
        self.tx_bytes += load * LINE * after_ns / 8e9
        hop = (queue * BDP, self.tx_bytes, self.ts_ns, rate_bps)
        self.hand.ack(1, wait_ns=after_ns, rtt_ns=rtt_ns, hops=[hop], prior=prior)
        return float(self.hand.flow.cwnd_bytes)


def test_it_begins_with_a_bdp_paced_over_tau() -> None:
    path = Path()
    assert path.hand.flow.cwnd_bytes == BDP
    assert path.hand.rate_bps == pytest.approx(LINE)


def test_power_is_current_times_voltage() -> None:
    """(dq/dt + txRate)(q + b tau) / (b^2 tau), over a whole tau."""
    path = Path()
    path.ack(load=1.0, queue=0.5)  # half a BDP more waits than before
    assert path.hand.flow.power == pytest.approx(1.5 * 1.5)
    path.ack(load=1.0, queue=0.5)
    assert path.hand.flow.power == pytest.approx(1.0 * 1.5)
    path.ack(load=1.0, queue=0.0)  # arrivals are half of the rate
    assert path.hand.flow.power == pytest.approx(0.5)


def test_power_is_a_moving_average_over_tau() -> None:
    path = Path()
    path.hand.flow.power = 0.8
    path.ack(load=0.4, after_ns=TAU / 4)
    assert path.hand.flow.power == pytest.approx(0.75 * 0.8 + 0.25 * 0.4)


def test_the_window_follows_the_one_of_an_rtt_ago() -> None:
    path = Path()
    path.hold(BDP / 2)
    window = path.ack(load=1.0, queue=0.5)
    aim = BDP / 2 / 2.25 + BETA
    assert window == pytest.approx(GAMMA * aim + (1 - GAMMA) * BDP / 2)


def test_the_equilibrium_is_kept() -> None:
    """Theorem 1: W = b tau + beta with a queue of beta."""
    path = Path()
    path.hold(BDP + BETA)
    path.ack(load=1.0, queue=BETA / BDP)
    for _ in range(5):
        assert path.ack(load=1.0, queue=BETA / BDP) == pytest.approx(BDP + BETA, rel=1e-2)


def test_the_old_window_is_that_of_tau_ago() -> None:
    """Whatever the RTT, since a switch stamps what it sends."""
    path = Path()
    path.hold(BDP / 4)
    seen = [BDP / 4]
    for _ in range(30):
        cwnd = float(path.hand.flow.cwnd_bytes)
        window = path.ack(load=1.0, after_ns=TAU / 8, rtt_ns=7 * TAU)
        old = seen[max(len(seen) - 8, 0)]
        assert window == pytest.approx(min(GAMMA * (old + BETA) + (1 - GAMMA) * cwnd, 2 * BDP))
        seen.append(window)


def test_the_most_loaded_hop_counts() -> None:
    hand = Hand("powertcp", line_rate_bps=LINE, base_rtt_ns=TAU)
    rates = (LINE, 4 * LINE)
    for at in range(2):
        hops = [(0, at * load * rate * TAU / 8e9, at * TAU, rate) for load, rate in
                zip((0.5, 0.8), rates, strict=True)]  # fmt: skip
        hand.ack(1, rtt_ns=TAU, hops=hops)
    assert hand.flow.power == pytest.approx(0.8)


def test_another_path_is_only_noted() -> None:
    path = Path()
    path.hand.flow.power = 0.5
    path.ts_ns = -2 * TAU
    path.ack(load=0.1)
    assert path.hand.flow.power == 0.5
    path.ack(load=0.1, rate_bps=LINE / 2)
    assert path.hand.flow.power == 0.5


def test_a_link_that_nobody_uses_doubles_the_window_up_to_two_products() -> None:
    path = Path()
    path.hold(BDP / 8)
    window = path.ack(load=0.01)
    assert window == pytest.approx(GAMMA * (2 * BDP / 8 + BETA) + (1 - GAMMA) * BDP / 8)
    for _ in range(20):
        window = path.ack(load=0.01)
    assert window == pytest.approx(2 * BDP)


def test_a_long_queue_at_which_nothing_arrives_lets_no_window_grow() -> None:
    """The power is the equilibrium's while a BDP or more waits, and then what waits of it."""
    path = Path()
    path.ack(load=1.0, queue=3)
    for queue, load, power in ((2, 1, 1), (1, 1, 1), (0.75, 0.25, 0.75), (0.25, 0.5, 0.25)):
        path.hold(BDP / 8)
        window = path.ack(load=load, queue=queue)
        assert path.hand.flow.power == pytest.approx(power)
        aim = BDP / 8 / max(power, 0.5) + BETA
        assert window == pytest.approx(GAMMA * aim + (1 - GAMMA) * BDP / 8)


def test_without_telemetry_nothing_moves() -> None:
    hand = Hand("powertcp", line_rate_bps=LINE, base_rtt_ns=TAU)
    for _ in range(20):
        hand.ack(1, rtt_ns=3 * TAU, marked=1, lost=1)
    hand.lose()
    hand.timeout()
    assert hand.flow.cwnd_bytes == BDP


def test_beta_by_the_number_of_flows() -> None:
    hand = Hand("powertcp", line_rate_bps=LINE, base_rtt_ns=TAU, n_flows=4)
    for at in range(2):
        hand.ack(1, rtt_ns=TAU, hops=[(0, at * BDP, at * TAU, LINE)])
    assert hand.flow.cwnd_bytes == pytest.approx(BDP + GAMMA * BDP / 4)


def test_theta_takes_the_rtt_for_the_power() -> None:
    """(dRTT/dt + 1) RTT / tau, and one change per RTT."""
    hand = Hand("powertcp", line_rate_bps=LINE, base_rtt_ns=TAU, beta_bytes=BETA, theta=True)
    hand.ack(1, rtt_ns=2 * TAU)
    hand.ack(1, wait_ns=2 * TAU, rtt_ns=3 * TAU)
    assert hand.flow.power == pytest.approx(1.5 * 3)
    window = hand.flow.cwnd_bytes
    sent = hand.delivered - 5
    hand.ack(1, wait_ns=TAU, rtt_ns=3 * TAU, prior=sent)
    assert hand.flow.cwnd_bytes == window
    assert hand.flow.power == pytest.approx(3)
    hand.ack(1, wait_ns=TAU, rtt_ns=2.0 * TAU)
    assert hand.flow.power == pytest.approx(1)  # nothing arrived at a queue of a BDP
