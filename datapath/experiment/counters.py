# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Metrics made of the counters of path and devices."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from datapath.errors import RunFailed
from datapath.experiment.metrics import UNITS
from datapath.workloads.base import Metric

_QP_COUNTERS = ("retransmits", "spurious", "timeouts", "tx_packets")


def path_metrics(
    counters: Mapping[str, Mapping[str, int]], *, limited: bool = False
) -> list[Metric]:
    """The path's counters in both directions together, and its accuracy."""
    whats = ("passed", "dropped", "overflowed", "policed", "aqm_dropped", "shaped", "marked")
    found = {
        f"path_{what}": float(sum(counters[what].values())) for what in whats if counters.get(what)
    }
    if paused := counters.get("paused_ns"):
        found["path_paused"] = float(sum(paused.values()))
    if late := counters.get("late_p99_ns"):
        found["path_late_p99"] = float(max(late.values()))
        found["path_cpu_limited"] = float(limited)
    return [Metric(name, value, UNITS[name]) for name, value in found.items()]


def card_metrics(cards: Sequence[Mapping[str, Any]]) -> list[Metric]:
    """What tunnels between virtual cards did, and how near to their weights tenants shared."""
    tunnels = [row for card in cards for row in card["hosts"].values()]
    if not tunnels:
        return []
    packets = sum(row["packets"] for row in tunnels)
    again = sum(row["retransmits"] for row in tunnels)
    classes = [row for tenant in _tenants(cards) for row in tenant["classes"].values()]
    found = {
        "card_retransmitted_share": again / packets if packets else 0.0,
        "card_class_retransmitted_share": max(map(_sent_again, _classes(cards)), default=0.0),
        "card_timeouts": float(sum(row["timeouts"] for row in tunnels)),
        "card_rtt": float(max(row["rtt_ns"] for row in tunnels)),
        "card_first_wait": float(max(row["first_wait_ns"] for row in classes)),
    }
    # Acknowledgements, which are nearly all that some cards send, want less than their share.
    busiest = max(cards, key=lambda card: sum(row["tx_bytes"] for row in _tenants([card])))
    due = [row["tx_bytes"] / row["due_bytes"] for row in _tenants([busiest]) if row["due_bytes"]]
    if len(due) > 1:
        found["card_share_error"] = max(abs(share - 1) for share in due)
    return [Metric(name, value, UNITS[name]) for name, value in found.items()]


def _classes(cards: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What each class of a tenant counts of each peer of its card."""
    return [
        peer
        for tenant in _tenants(cards)
        for row in tenant["classes"].values()
        for peer in row["hosts"].values()
    ]


def _sent_again(peer: Mapping[str, Any]) -> float:
    return float(peer["retransmits"] / peer["packets"]) if peer["packets"] else 0.0


def _tenants(cards: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [tenant for card in cards for tenant in card["tenants"].values()]


def device_statistics(logs: Path) -> list[dict[str, Any]]:
    """The counters that the verbs front wrote, a file for each process and device."""
    statistics = []
    for path in sorted(logs.glob("stats-*.json")):
        host = path.name.removeprefix("stats-").partition(".")[0]
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RunFailed(f"{path.name} of the verbs front is not JSON: {error}") from None
        statistics.append({"host": host, **content})
    return statistics


def device_metrics(statistics: Sequence[Mapping[str, Any]]) -> list[Metric]:
    """Retransmissions, time-outs and pacing of all QPs on all hosts, and AF_XDP's copies."""
    metrics = _xdp_metrics([entry for entry in statistics if entry["port"]["kind"] == "afxdp"])
    qps = [qp for entry in statistics for qp in entry.get("qps", [])]
    if not qps:
        return metrics
    total = {name: sum(qp.get(name, 0) for qp in qps) for name in _QP_COUNTERS}
    metrics += [Metric(name, float(total[name]), "1") for name in ("retransmits", "timeouts")]
    if total["tx_packets"]:
        share = total["retransmits"] / total["tx_packets"]
        metrics.append(Metric("retransmitted_share", share, "1"))
        metrics.append(Metric("spurious_share", total["spurious"] / total["tx_packets"], "1"))
    return metrics + _pacing_metrics(qps)


def _pacing_metrics(qps: Sequence[Mapping[str, Any]]) -> list[Metric]:
    """How far from their plan paced QPs sent; empty if pacing made no QP wait."""
    waits = sum(qp.get("pacing_waits", 0) for qp in qps)
    if not waits:
        return []
    found = {
        "pacing_late_mean": sum(qp["pacing_late_ns"] for qp in qps) / waits,
        "pacing_late_max": float(max(qp["pacing_late_max_ns"] for qp in qps)),
        "pacing_burst_max": float(max(qp["pacing_burst_max"] for qp in qps)),
    }
    return [Metric(name, value, UNITS[name]) for name, value in found.items()]


def _xdp_metrics(ports: Sequence[Mapping[str, Any]]) -> list[Metric]:
    """How AF_XDP sockets were bound, by their own XDP_OPTIONS, and packets the kernel copied."""
    if not ports:
        return []
    bound = sum(entry["port"]["mode"] == "zero-copy" for entry in ports)
    copies = sum(entry["port_stats"]["copies"] for entry in ports)
    return [
        Metric("xdp_zero_copy", bound / len(ports), UNITS["xdp_zero_copy"]),
        Metric("xdp_copies", float(copies), UNITS["xdp_copies"]),
    ]


def unique(metrics: Sequence[Metric]) -> list[dict[str, Any]]:
    """Metrics as plain data.  Of two with the same name, the first stays: the workload's own."""
    first: dict[str, Metric] = {}
    for metric in metrics:
        first.setdefault(metric.name, metric)
    return [asdict(metric) for metric in first.values()]
