# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Traffic tables, drawn from a seed: the same arguments give the same table, byte for byte.

All randomness comes from PCG64 generators that are made here.  Each source has streams of its
own, so that when it sends how much does not depend on how many other hosts there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from datapath.errors import LocalError
from datapath.fabric import flows as table
from datapath.workloads.traffic.base import too_many
from datapath.workloads.traffic.qps import in_turn
from datapath.workloads.traffic.sizes import Sizes

Pairs = Sequence[tuple[int, int]]
"""(source, destination) as host indices."""

_STARTS, _DESTINATIONS, _SIZES, _PERMUTATION = range(4)  # random streams


def generator(seed: int, *stream: int) -> np.random.Generator:
    """The random stream `stream` of a seed."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *stream])))


def stream(
    pairs: Pairs,
    *,
    message_bytes: int,
    depth: int,
    duration_ns: int,
    qps: int = 1,
    stagger_ns: int = 0,
) -> table.Flows:
    """Each pair keeps `depth` messages outstanding on each of its QPs, up to a time.

    stagger_ns: from the start of one pair to that of the next.
    """
    flows = table.empty(len(pairs) * qps)
    flows["start_ns"] = np.repeat(
        np.arange(len(pairs), dtype=np.uint64) * np.uint64(stagger_ns), qps
    )
    _set_pairs(flows, [pair for pair in pairs for _ in range(qps)])
    flows["qp"] = np.tile(np.arange(qps), len(pairs))
    flows["bytes"] = table.UNTIL_STOP
    flows["stop_ns"] = duration_ns
    flows["message_bytes"] = message_bytes
    flows["depth"] = depth
    return flows


def poisson(
    sizes: Sizes,
    *,
    hosts: int,
    load: float,
    rates_bps: Sequence[float],
    duration_ns: int,
    seed: int,
    qps: int,
    destinations: Callable[[int], Sequence[int]],
) -> table.Flows:
    """Flows that arrive at each source as a Poisson process.

    load: payload offered by each source, as a share of rates_bps, the rate of its link; that is
    the artefact's definition.  destinations: of a host, those it sends to, evenly chosen; a
    host without any sends nothing.  qps: the flows of a pair take so many QPs in turn.
    """
    senders = [host for host in range(hosts) if len(destinations(host))]
    gaps_ns = {host: sizes.mean_bytes * 8 * 1e9 / (load * rates_bps[host]) for host in senders}
    expected = sum(duration_ns / gap_ns for gap_ns in gaps_ns.values())
    if wrong := too_many(expected):
        raise LocalError(wrong, hint="make duration or load less")
    parts = []
    for source, gap_ns in gaps_ns.items():
        starts = _arrivals(generator(seed, _STARTS, source), gap_ns, duration_ns)
        flows = table.empty(len(starts))
        flows["start_ns"] = starts
        flows["src"] = source
        choose = generator(seed, _DESTINATIONS, source)
        flows["dst"] = choose.choice(np.asarray(destinations(source)), len(starts))
        flows["bytes"] = sizes.draw(generator(seed, _SIZES, source), len(starts))
        parts.append(flows)
    whole = table.join(parts)
    whole["qp"] = in_turn(whole, qps)
    return whole


def _arrivals(rng: np.random.Generator, gap_ns: float, duration_ns: int) -> Any:
    """Instants of a Poisson process in [0, duration_ns), uint64."""
    pieces: list[Any] = []
    at = 0.0
    block = int(duration_ns / gap_ns * 1.1) + 100
    while at < duration_ns:
        instants = at + np.cumsum(rng.exponential(gap_ns, block))
        pieces.append(instants)
        at = float(instants[-1])
    whole = np.concatenate(pieces) if pieces else np.empty(0)
    return whole[whole < duration_ns].astype(np.uint64)


def incast(
    senders: Sequence[int], receiver: int, *, size: int, rounds: int, interval_ns: int
) -> table.Flows:
    """In each round all senders send `size` bytes to one receiver at once.  tag: the round."""
    flows = table.empty(len(senders) * rounds)
    _set_pairs(flows, [(sender, receiver) for _ in range(rounds) for sender in senders])
    flows["tag"] = np.repeat(np.arange(rounds), len(senders))
    flows["start_ns"] = flows["tag"].astype(np.uint64) * np.uint64(interval_ns)
    flows["bytes"] = size
    return flows


def derangement(hosts: int, seed: int) -> list[int]:
    """Whom each host sends to: a random permutation without a fixed point, all equally likely."""
    if hosts < 2:
        raise LocalError(f"a permutation needs at least 2 hosts, not {hosts}")
    rng = generator(seed, _PERMUTATION)
    while True:  # succeeds with probability 1/e each time
        drawn = rng.permutation(hosts)
        if not np.any(drawn == np.arange(hosts)):
            return [int(host) for host in drawn]


def permutation(
    hosts: int,
    *,
    seed: int,
    message_bytes: int,
    depth: int,
    duration_ns: int = 0,
    size: int = 0,
) -> table.Flows:
    """Each host sends to one other and receives from one: `size` bytes, or for a time."""
    flows = table.empty(hosts)
    _set_pairs(flows, list(enumerate(derangement(hosts, seed))))
    flows["bytes"] = size or table.UNTIL_STOP
    flows["stop_ns"] = 0 if size else duration_ns
    flows["message_bytes"] = message_bytes
    flows["depth"] = depth
    return flows


def _set_pairs(flows: table.Flows, pairs: Pairs) -> None:
    flows["src"] = [source for source, _ in pairs]
    flows["dst"] = [destination for _, destination in pairs]
