# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What an algorithm may do and hardly means to: no rule is broken, and it does not work."""

from __future__ import annotations

from collections.abc import Callable

from datapath.cc import records, subset
from datapath.cc.drivers import Driver
from datapath.cc.exercise import LINE_RATES_BPS, Step, Transport, port_in_words, random_steps

_LOSSES, _CALM = 50, 1000
_TRIED = 1000
_IN_A_ROW = 100
_RTT_NS = 40_000
_RTTS = 1000


def doubts(new_flow: Callable[[], Driver], seed: int) -> list[str]:
    """In words; [] when there are none.  new_flow: makes a new flow of the algorithm."""
    return [
        *_unguarded_hops(new_flow()),
        *_standstill(new_flow),
        *_endless_wake(new_flow(), seed),
    ]


def _unguarded_hops(driver: Driver) -> list[str]:
    reads = subset.analyse(driver.algorithm).reads
    return [
        f"reads {role}.hop, and nowhere {role}.n_hops: where nothing tells of links, "
        f"all {records.HOPS_MAX} records are zeros"
        for role in ("ack", "data")
        if f"{role}.hop" in reads and f"{role}.n_hops" not in reads
    ]


def _standstill(new_flow: Callable[[], Driver]) -> list[str]:
    """Of window or rate: the first port on which it is left with hardly any."""
    for line_rate_bps in LINE_RATES_BPS:
        left = _left_by_losses(new_flow(), line_rate_bps)
        if left:
            calm = f"{_CALM} acknowledgements without one{port_in_words(line_rate_bps)}"
            return [f"after {_LOSSES} losses and {calm}, {left}: does it ever grow?"]
    return []


def _left_by_losses(driver: Driver, line_rate_bps: float) -> str:
    """Losses, then none, at one RTT and with links that have no queue; "" when enough is left."""
    transport = Transport(driver, line_rate_bps=line_rate_bps)
    for _ in range(_LOSSES):
        transport.step(Step("loss", _RTT_NS, share=0.5))
        transport.step(Step("ack", _RTT_NS, share=1.0, hops=1))
    for _ in range(_CALM):
        transport.step(Step("ack", _RTT_NS, share=1.0, hops=1))
    cwnd, rate = float(driver.flow.cwnd_bytes), float(driver.flow.pacing_rate_bps)
    packet_bytes = float(driver.flow.mss_bytes)
    if not rate and cwnd < packet_bytes:
        return f"cwnd_bytes is {cwnd:g}, less than a packet"
    if 0 < rate < 8e9 * packet_bytes / (_RTTS * _RTT_NS):
        return f"pacing_rate_bps is {rate:g}, less than a packet in {_RTTS} RTTs"
    return ""


def _endless_wake(driver: Driver, seed: int) -> list[str]:
    transport = Transport(driver)
    for step in random_steps(seed, _TRIED):
        transport.step(step)
        if all(transport.wake() for _ in range(_IN_A_ROW)):
            asks = f"on_wake asked {_IN_A_ROW} times in a row to be called at once"
            return [f"{asks}: where that has no end, it keeps a CPU busy"]
    return []
