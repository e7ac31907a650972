# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Metrics of the results of flows, the same for live hosts and simulated ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from datapath.errors import RunFailed
from datapath.fabric.flows import UNTIL_STOP
from datapath.quantiles import nearest_rank
from datapath.stats import jain
from datapath.workloads.base import Metric, Outcome

if TYPE_CHECKING:
    from datapath.fabric.flows import FlowResults, Flows, Latencies
    from datapath.workloads.traffic.busiest import BusiestLink
    from datapath.workloads.traffic.ideal import Ideal

SIZE_BUCKETS: Mapping[str, tuple[float, float]] = {
    "small": (0, 10_000),
    "medium": (10_000, 1_000_000),
    "large": (1_000_000, float("inf")),
}
"""Name -> bytes of its flows, more than the first and at most the second."""

_QUANTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
_SAMPLES = 10_000

_WC = {
    1: "local length error",
    2: "local QP operation error",
    4: "local protection error",
    5: "flushed",
    9: "remote invalid request",
    10: "remote access error",
    11: "remote operation error",
    12: "transport retry counter exceeded",
    13: "RNR retry counter exceeded",
    21: "the connection broke",
}


def check(flows: Flows, results: FlowResults) -> None:
    """RunFailed when a flow failed, or when nothing was delivered at all."""
    failed = np.flatnonzero(results.rows["failed"])
    if failed.size:
        first = int(failed[0])
        status = int(results.rows["failed"][first])
        flow = flows[first]
        raise RunFailed(
            f"{failed.size} of {len(flows)} flows failed; flow {first} from host {flow['src']} to "
            f"host {flow['dst']}: {_WC.get(status, f'work completion status {status}')}",
            hint="see the traffic-*.err among the run's logs",
        )
    if not results.rows["delivered_bytes"].sum():
        raise RunFailed(
            "not one message was delivered",
            hint="give it more time, smaller messages or less loss",
        )


def outcome(
    flows: Flows,
    results: FlowResults,
    *,
    deadline_ns: int,
    ideal: Ideal | None = None,
    busiest: BusiestLink | None = None,
    fair: bool = False,
    completion: bool = False,
    rounds: bool = False,
    competing: Sequence[int] = (),
) -> Outcome:
    """Metrics and samples of one run.

    deadline_ns: when flows ended that had not finished, and that nothing had stopped before.
    ideal: gives slowdown if it knows the RTT.  busiest: gives utilisation.
    fair: Jain's index over the QPs, those with flows without end if there are any.
    completion: times and slowdowns of whole flows.
    rounds: flows of one tag belong together (incast).
    competing: rows of flows that compete with the others, which are those that are judged.
    """
    check(flows, results)
    rows = results.rows
    ends_ns = _ends(flows, rows, deadline_ns)
    flows = _begun(flows, ends_ns)
    seconds = _lasted_ns(flows, rows, ends_ns) / 1e9
    metrics = [
        *_throughput(rows, seconds),
        *latency_metrics(results.latencies),
    ]
    if fair:
        endless = flows["bytes"] == UNTIL_STOP
        counted = endless if endless.any() else ~endless
        shares = _rates(flows[counted], rows[counted], ends_ns[counted])
        metrics += [Metric("fairness", jain(shares), "1")] if len(shares) > 1 else []
    if competing:
        metrics += _competing(flows, rows, ends_ns, competing)
    if results.data_packets:
        share = results.retransmitted_packets / results.data_packets
        metrics.append(Metric("retransmits", float(results.retransmitted_packets), "1"))
        metrics.append(Metric("retransmitted_share", share, "1"))
    samples = {"latency_ns": results.latencies.samples(_SAMPLES)}
    if busiest is not None:
        used = busiest.utilisation(flows, rows, seconds)
        metrics += [] if used is None else [Metric("utilisation", used, "1")]
    if completion:
        more, of_flows = _completion(flows, rows, ideal)
        metrics += more
        samples |= of_flows
    if rounds:
        metrics += _rounds(flows, rows)
    return Outcome(metrics, samples, {"flows": str(len(flows))})


def _begun(flows: Flows, ends_ns: Any) -> Flows:
    """The table, in which a flow that waited for another one starts when it could begin."""
    waited = np.flatnonzero(flows["after"])
    if not waited.size:
        return flows
    begun = flows.copy()
    ended = ends_ns[flows["after"][waited].astype(np.int64) - 1]
    begun["start_ns"][waited] = np.maximum(flows["start_ns"][waited], ended)
    return begun


def latency_metrics(latencies: Latencies) -> list[Metric]:
    """Percentiles, mean and minimum of all messages, nanoseconds."""
    if not latencies.count:
        return []
    return [
        *(Metric(f"latency_{n}", latencies.quantile(q), "ns") for n, q in _QUANTILES.items()),
        Metric("latency_mean", latencies.mean_ns, "ns"),
        Metric("latency_min", float(latencies.min_ns), "ns"),
    ]


def _ends(flows: Flows, rows: Any, deadline_ns: int) -> Any:
    """When each flow ended, ns: it finished, or its stop_ns or the deadline cut it short."""
    cut = np.where(flows["stop_ns"] > 0, flows["stop_ns"], np.uint64(deadline_ns))
    cut = np.minimum(cut, np.uint64(deadline_ns))
    return np.where(rows["finish_ns"] > 0, rows["finish_ns"], cut)


def _lasted_ns(flows: Flows, rows: Any, ends_ns: Any) -> float:
    """From the first start to the last end; flows that neither finished nor delivered are out."""
    counts = (rows["finish_ns"] > 0) | (rows["delivered_bytes"] > 0)
    return max(float(ends_ns[counts].max()) - float(flows["start_ns"].min()), 1.0)


def _throughput(rows: Any, seconds: float) -> list[Metric]:
    unfinished = float((rows["finish_ns"] == 0).mean())
    return [
        Metric("goodput", float(rows["delivered_bytes"].sum()) * 8 / seconds, "bit/s"),
        Metric("message_rate", float(rows["messages"].sum()) / seconds, "1/s"),
        Metric("unfinished_share", unfinished, "1"),
    ]


def _rates(flows: Flows, rows: Any, ends_ns: Any) -> list[float]:
    """bit/s that each QP got while it had a flow, from start to end."""
    if not len(flows):
        return []
    _, qp = np.unique(flows[["src", "dst", "qp"]], return_inverse=True)
    delivered = np.bincount(qp, rows["delivered_bytes"].astype(np.float64))
    busy_ns = _covered_ns(qp, flows["start_ns"].astype(np.int64), ends_ns.astype(np.int64))
    return [float(rate) for rate in delivered * 8e9 / busy_ns]


def _covered_ns(qp: Any, starts_ns: Any, ends_ns: Any) -> Any:
    """Of each QP, the time that its flows cover, at least 1 ns: they may wait behind each other."""
    order = np.lexsort((starts_ns, qp))
    qp, starts, ends = qp[order], starts_ns[order], ends_ns[order]
    shift = qp * (int(ends.max()) + 1)  # the times of a QP lie behind those of the one before it
    before = np.maximum.accumulate(np.concatenate([[0], (shift + ends)[:-1]])) - shift
    return np.maximum(np.bincount(qp, np.maximum(ends - np.maximum(starts, before), 0)), 1)


def _competing(flows: Flows, rows: Any, ends_ns: Any, competing: Sequence[int]) -> list[Metric]:
    """Shares of the judged flows, and of those that compete with them, of both without end."""
    others = np.zeros(len(flows), bool)
    others[list(competing)] = True
    endless = flows["bytes"] == UNTIL_STOP
    mine, theirs = (
        _rates(flows[which], rows[which], ends_ns[which])
        for which in (endless & ~others, endless & others)
    )
    if not mine or not theirs:
        return []
    fair = np.mean([*mine, *theirs])
    return [
        Metric("fair_share", float(np.mean(mine) / fair), "1"),
        Metric("competing_fair_share", float(np.mean(theirs) / fair), "1"),
    ]


def _completion(
    flows: Flows, rows: Any, ideal: Ideal | None
) -> tuple[list[Metric], dict[str, list[float]]]:
    """Times from the scheduled start to the end, of flows of a number of bytes that finished."""
    finished = (rows["finish_ns"] > 0) & (flows["bytes"] != UNTIL_STOP)
    done = flows[finished]
    fct = rows["finish_ns"][finished].astype(np.float64) - done["start_ns"]
    metrics = [Metric(f"fct_{n}", _rank(fct, q), "ns") for n, q in _QUANTILES.items() if fct.size]
    samples = {"fct_ns": _thinned(fct)}
    if ideal is None or not ideal.knows_rtt or not fct.size:
        return metrics, samples
    alone = ideal.fct_ns(done)
    if not (np.isfinite(alone) & (alone > 0)).all():
        return metrics, samples
    slowdown = np.maximum(fct / alone, 1.0)
    metrics += [Metric(f"slowdown_{n}", _rank(slowdown, q), "1") for n, q in _QUANTILES.items()]
    for bucket, (more_than, at_most) in SIZE_BUCKETS.items():
        inside = slowdown[(done["bytes"] > more_than) & (done["bytes"] <= at_most)]
        if inside.size:
            metrics += [
                Metric(f"slowdown_{n}_{bucket}", _rank(inside, q), "1")
                for n, q in _QUANTILES.items()
            ]
    return metrics, samples


def _rounds(flows: Flows, rows: Any) -> list[Metric]:
    """How long it takes until the last flow of a round has finished."""
    if (rows["finish_ns"] == 0).any():
        return []
    tags, of_round = np.unique(flows["tag"], return_inverse=True)
    begin, end = np.full(len(tags), np.inf), np.zeros(len(tags))
    np.minimum.at(begin, of_round, flows["start_ns"].astype(np.float64))
    np.maximum.at(end, of_round, rows["finish_ns"].astype(np.float64))
    return [Metric(f"round_{n}", _rank(end - begin, q), "ns") for n, q in _QUANTILES.items()]


def _rank(values: Any, share: float) -> float:
    ordered: Any = np.sort(values)
    return float(nearest_rank(ordered, share))


def _thinned(values: Any) -> list[float]:
    """At most _SAMPLES of them, spread as all are."""
    ordered = np.sort(values)
    if len(ordered) > _SAMPLES:
        at = ((np.arange(_SAMPLES) + 0.5) / _SAMPLES * len(ordered)).astype(np.int64)
        ordered = ordered[at]
    return [float(value) for value in ordered]
