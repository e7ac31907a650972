# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The traffic table: flows between hosts with their times, and the results.

One row is one flow.  The same table, as an array or as a file, drives the simulator and the live
generator, and both answer with the same results: a row for each flow, and a histogram of the
latencies of all messages.  `flows.h` has the same layout for C.

Rules that both keep:

- Times are nanoseconds after the schedule's zero.
- A flow is cut into messages of `message_bytes` (the last one may be shorter), of which `depth`
  are outstanding at once.  Its latency samples are from the post of a message to its completion
  at the sender, which for RDMA WRITE and SEND means that the receiver's transport has it all.
- Flows of one QP (src, dst, qp) queue behind each other in the order of the table: the next one
  posts its first message when it has started and the one before it has posted its last.
- A flow whose `cc` is not 0 gives its QP that algorithm of a list when it begins; the QP keeps it
  for the flows behind it.
- A flow with `after` does not begin before that row (counted from 1, an earlier one) has ended.
  Meanwhile it holds up the flows behind it on its QP.
- A row that is `held` does not begin before an order says so (WHATS).
- `dscp` is that of the packets of a QP, both ways; all flows of a QP have the same.
- A flow of `UNTIL_STOP` bytes ends at `stop_ns`, which is its `finish_ns`; messages that complete
  later count neither as delivered nor as latency samples.  Any other flow finishes when its last
  message completes; one that `stop_ns` cuts short has finish_ns 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from datapath import quantiles
from datapath.errors import LocalError

Flows: TypeAlias = "np.ndarray[Any, np.dtype[np.void]]"
"""Array of FLOW_DTYPE, shape (flows,)."""

ABI = 4  # DP_FLOW_ABI
UNTIL_STOP = 2**64 - 1  # DP_FLOW_UNTIL_STOP
MESSAGE_MAX = 2**30  # DP_FLOW_MESSAGE_MAX
DEPTH_MAX = 2**20  # DP_FLOW_DEPTH_MAX
ANY_HOST = 2**32 - 1

RDMA_WRITE, SEND, RDMA_READ = 0, 2, 4
OPCODES = {"write": RDMA_WRITE, "send": SEND, "read": RDMA_READ}
"""Values of enum dp_wr_opcode that a flow may have."""

FLOW_DTYPE = np.dtype(
    [
        ("start_ns", "<u8"),
        ("stop_ns", "<u8"),
        ("src", "<u4"),
        ("dst", "<u4"),
        ("bytes", "<u8"),
        ("message_bytes", "<u8"),
        ("depth", "<u4"),
        ("qp", "<u4"),
        ("tag", "<u4"),
        ("opcode", "<u4"),
        ("cc", "<u4"),
        ("dscp", "<u4"),
        ("after", "<u4"),
        ("held", "<u4"),
    ]
)
"""struct dp_flow."""

ORDER_DTYPE = np.dtype([("row", "<u4"), ("what", "<u4"), ("cc", "<u4"), ("reserved", "<u4")])
"""struct dp_flow_order."""
HOLD, BEGIN, END, CC = WHATS = range(4)
"""enum dp_flow_what: what becomes of a row while a run goes on."""

RESULT_DTYPE = np.dtype(
    [
        ("posted_ns", "<u8"),
        ("finish_ns", "<u8"),
        ("delivered_bytes", "<u8"),
        ("messages", "<u8"),
        ("failed", "<u4"),
        ("flow", "<u4"),
    ]
)
"""struct dp_flow_result."""

TABLE_DTYPE = np.dtype(
    [
        ("magic", "S8"),
        ("abi", "<u4"),
        ("row_bytes", "<u4"),
        ("rows", "<u8"),
        ("hosts", "<u4"),
        ("reserved", "<u4"),
        ("seed", "<u8"),
    ]
)
"""struct dp_flow_table."""

REPORT_DTYPE = np.dtype(
    [
        ("magic", "S8"),
        ("abi", "<u4"),
        ("row_bytes", "<u4"),
        ("rows", "<u8"),
        ("host", "<u4"),
        ("buckets", "<u4"),
        ("latency_min_ns", "<u8"),
        ("latency_max_ns", "<u8"),
        ("latency_sum_ns", "<u8"),
        ("data_packets", "<u8"),
        ("retransmitted_packets", "<u8"),
    ]
)
"""struct dp_flow_report."""

TABLE_MAGIC = b"DPFLOWS"
REPORT_MAGIC = b"DPREPRT"

LATENCY_SUB_BITS = 7  # DP_LATENCY_SUB_BITS
LATENCY_SUB = 1 << LATENCY_SUB_BITS
LATENCY_BUCKETS = (64 - LATENCY_SUB_BITS + 1) * LATENCY_SUB


def empty(rows: int) -> Flows:
    """Rows of zeros, with one message outstanding in each."""
    flows: Flows = np.zeros(rows, FLOW_DTYPE)
    flows["depth"] = 1
    return flows


def ordered(flows: Flows) -> Flows:
    """The same rows by start; equal starts keep their order."""
    return flows[np.argsort(flows["start_ns"], kind="stable")]


def join(tables: Sequence[Flows]) -> Flows:
    """Several tables as one, ordered."""
    return ordered(np.concatenate([empty(0), *tables]))


def check(flows: Flows, hosts: int) -> Flows:
    """The table itself; LocalError names the first row that makes no sense, and why."""
    if flows.dtype != FLOW_DTYPE or flows.ndim != 1:
        raise LocalError(
            f"a traffic table is an array of FLOW_DTYPE with one dimension, not {flows.dtype} "
            f"of shape {flows.shape}",
            hint="begin with flows.empty(rows)",
        )
    for wrong, what in faults(flows, hosts):
        row = int(np.argmax(wrong))
        raise LocalError(f"flow {row}: {what}", hint=f"the row is {flows[row]}")
    return flows


def faults(flows: Flows, hosts: int) -> list[tuple[np.ndarray[Any, np.dtype[np.bool_]], str]]:
    """Which rows make no sense, and why; each reason that there is."""
    until_stop = flows["bytes"] == UNTIL_STOP
    one_message = flows["message_bytes"] == 0
    stops = flows["stop_ns"] != 0
    largest = np.where(one_message, flows["bytes"], flows["message_bytes"])
    late = np.zeros(len(flows), bool)
    late[1:] = flows["start_ns"][1:] < flows["start_ns"][:-1]
    every = [
        (flows["src"] >= hosts, f"src is not one of the {hosts} hosts"),
        (flows["dst"] >= hosts, f"dst is not one of the {hosts} hosts"),
        (flows["src"] == flows["dst"], "src and dst are the same host"),
        (flows["bytes"] == 0, "bytes is 0: a flow has at least one"),
        (flows["depth"] == 0, "depth is 0: at least one message is outstanding"),
        (flows["depth"] > DEPTH_MAX, "at most 2^20 messages are outstanding"),
        (until_stop & ~stops, "it has no end: give bytes or stop_ns"),
        (until_stop & one_message, "a flow until stop_ns needs message_bytes"),
        (stops & (flows["stop_ns"] <= flows["start_ns"]), "stop_ns is not after start_ns"),
        (~(until_stop & one_message) & (largest > MESSAGE_MAX), "a message is at most 1 GiB"),
        (~np.isin(flows["opcode"], list(OPCODES.values())), "opcode is not WRITE, SEND or READ"),
        (flows["after"] > np.arange(len(flows)), "after is not an earlier row, counted from 1"),
        (flows["held"] > 1, "held is 0 or 1"),
        (flows["dscp"] > 63, "dscp is 0 to 63"),
        (_other_dscp(flows), "another row of its QP has another dscp"),
        (late, "it starts before the row above it: use flows.ordered()"),
    ]
    return [(wrong, what) for wrong, what in every if wrong.any()]


def _other_dscp(flows: Flows) -> Any:
    """Which rows have another DSCP than the first row of their QP."""
    if not flows["dscp"].any():
        return np.zeros(len(flows), bool)
    _, first, qp = np.unique(flows[["src", "dst", "qp"]], return_index=True, return_inverse=True)
    return flows["dscp"] != flows["dscp"][first][qp]


def write(path: Path, flows: Flows, hosts: int, *, seed: int = 0) -> None:
    """Check a table and write it as a file for C programs."""
    check(flows, hosts)
    head = np.zeros(1, TABLE_DTYPE)
    head[0] = (TABLE_MAGIC, ABI, FLOW_DTYPE.itemsize, len(flows), hosts, 0, seed)
    path.write_bytes(head.tobytes() + flows.tobytes())


def read(path: Path) -> tuple[Flows, int]:
    """(table, number of hosts); LocalError when the file is not a whole table."""
    data = path.read_bytes()
    head = _head(data, TABLE_DTYPE, TABLE_MAGIC, FLOW_DTYPE, path)
    body = data[TABLE_DTYPE.itemsize :]
    if len(body) != int(head["rows"]) * FLOW_DTYPE.itemsize:
        raise LocalError(f"{path}: {len(body)} bytes of rows, not {head['rows']} rows")
    return np.frombuffer(body, FLOW_DTYPE).copy(), int(head["hosts"])


def _head(
    data: bytes, dtype: np.dtype[np.void], magic: bytes, rows: np.dtype[np.void], path: Path
) -> Any:
    if len(data) < dtype.itemsize:
        raise LocalError(f"{path}: {len(data)} bytes are less than its head")
    head = np.frombuffer(data, dtype, 1)[0]
    if head["magic"] != magic:
        raise LocalError(f"{path}: begins with {bytes(head['magic'])!r}, not with {magic!r}")
    if head["abi"] != ABI or head["row_bytes"] != rows.itemsize:
        raise LocalError(
            f"{path}: version {head['abi']} with rows of {head['row_bytes']} bytes; this is "
            f"version {ABI} with {rows.itemsize}",
            hint="make it with the same build of datapath",
        )
    return head


# --- results ---------------------------------------------------------------------------------


def bucket_of(latencies_ns: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """dp_latency_bucket() of each value; shape as given."""
    values = np.asarray(latencies_ns, np.uint64)
    # The exponent of a float may round up just below a power of two; the comparison mends it.
    top = np.maximum(np.frexp(values.astype(np.float64))[1] - 1, 0).astype(np.uint64)
    top -= ((values >> top) == 0) & (top > 0)
    low = np.uint64(LATENCY_SUB_BITS)
    shift = np.where(top > low, top - low, np.uint64(0))
    return ((shift << low) + (values >> shift)).astype(np.int64)


def bucket_bounds() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Lowest value and width of each bucket, ns, shape (LATENCY_BUCKETS,) as float64."""
    index = np.arange(LATENCY_BUCKETS)
    shift = np.maximum(index // LATENCY_SUB - 1, 0)
    width = np.ldexp(1.0, shift)
    return (index - shift * LATENCY_SUB) * width, width


@dataclass
class Latencies:
    """Latencies of messages, counted in buckets at most 1/128 of their value wide.

    counts: shape (LATENCY_BUCKETS,), uint64.  min_ns, max_ns and sum_ns are exact.
    """

    counts: np.ndarray[Any, np.dtype[np.uint64]] = field(
        default_factory=lambda: np.zeros(LATENCY_BUCKETS, np.uint64)
    )
    min_ns: int = 0
    max_ns: int = 0
    sum_ns: int = 0

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    @property
    def mean_ns(self) -> float:
        return self.sum_ns / self.count if self.count else float("nan")

    def add(self, latencies_ns: Any) -> None:
        """Count values, in nanoseconds."""
        values = np.asarray(latencies_ns, np.uint64).ravel()
        if values.size:
            more = np.bincount(bucket_of(values), minlength=LATENCY_BUCKETS).astype(np.uint64)
            total = sum(int(v) for v in values)
            self._join(more, int(values.min()), int(values.max()), total)

    def merge(self, other: Latencies) -> None:
        """Count everything that another one has counted."""
        if other.count:
            self._join(other.counts, other.min_ns, other.max_ns, other.sum_ns)

    def _join(self, counts: Any, min_ns: int, max_ns: int, sum_ns: int) -> None:
        self.min_ns = min(self.min_ns, min_ns) if self.count else min_ns
        self.counts = self.counts + counts
        self.max_ns = max(self.max_ns, max_ns)
        self.sum_ns += sum_ns

    def quantile(self, share: float) -> float:
        """Nearest rank, ns: the middle of its bucket, within min_ns and max_ns; NaN of nothing."""
        return float(self.quantiles(np.array([share]))[0])

    def quantiles(self, shares: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """quantile() of several shares at once."""
        total = self.count
        if not total:
            return np.full(shares.shape, np.nan)
        ranks = np.array([quantiles.rank(float(share), total) for share in shares], np.int64)
        index = np.searchsorted(np.cumsum(self.counts), ranks, side="right")
        low, width = bucket_bounds()
        middle = low[index] + (width[index] - 1) / 2
        clipped: np.ndarray[Any, Any] = np.clip(middle, self.min_ns, self.max_ns)
        return clipped

    def samples(self, limit: int = 10_000) -> list[float]:
        """At most `limit` values, ns, that are spread as the counted ones are."""
        count = min(limit, self.count)
        return [float(v) for v in self.quantiles((np.arange(count) + 0.5) / max(count, 1))]


@dataclass
class FlowResults:
    """The results of a table's flows.

    rows: array of RESULT_DTYPE, shape (flows,), in the order of the table once it is whole.
    data_packets, retransmitted_packets: of the transport; 0 and 0 when it does not say.
    """

    rows: Flows
    latencies: Latencies = field(default_factory=Latencies)
    data_packets: int = 0
    retransmitted_packets: int = 0
    host: int = ANY_HOST

    def write(self, path: Path) -> None:
        """As a file with struct dp_flow_report in front."""
        head = np.zeros(1, REPORT_DTYPE)
        lat = self.latencies
        head[0] = (
            *(REPORT_MAGIC, ABI, RESULT_DTYPE.itemsize, len(self.rows), self.host),
            *(LATENCY_BUCKETS, lat.min_ns, lat.max_ns, lat.sum_ns),
            *(self.data_packets, self.retransmitted_packets),
        )
        path.write_bytes(head.tobytes() + lat.counts.tobytes() + self.rows.tobytes())

    @classmethod
    def read(cls, path: Path) -> FlowResults:
        """LocalError when the file is not a whole result."""
        data = path.read_bytes()
        head = _head(data, REPORT_DTYPE, REPORT_MAGIC, RESULT_DTYPE, path)
        counts_end = REPORT_DTYPE.itemsize + 8 * LATENCY_BUCKETS
        rows_end = counts_end + int(head["rows"]) * RESULT_DTYPE.itemsize
        if head["buckets"] != LATENCY_BUCKETS or len(data) != rows_end:
            raise LocalError(f"{path}: {len(data)} bytes where its head tells of {rows_end}")
        counts = np.frombuffer(data[REPORT_DTYPE.itemsize : counts_end], "<u8").copy()
        latencies = Latencies(
            counts,
            int(head["latency_min_ns"]),
            int(head["latency_max_ns"]),
            int(head["latency_sum_ns"]),
        )
        return cls(
            np.frombuffer(data[counts_end:], RESULT_DTYPE).copy(),
            latencies,
            int(head["data_packets"]),
            int(head["retransmitted_packets"]),
            int(head["host"]),
        )

    @classmethod
    def merge(cls, parts: Iterable[FlowResults], flows: Flows) -> FlowResults:
        """The results of all hosts as one, a row for each flow of the table.

        LocalError when a flow has no row or more than one.
        """
        parts = list(parts)
        rows = np.concatenate([np.zeros(0, RESULT_DTYPE), *(part.rows for part in parts)])
        rows = rows[np.argsort(rows["flow"], kind="stable")]
        if not np.array_equal(rows["flow"], np.arange(len(flows))):
            raise LocalError(
                f"{len(rows)} result rows do not answer the {len(flows)} flows one to one",
                hint="every host of the table has to report",
            )
        whole = cls(rows)
        for part in parts:
            whole.latencies.merge(part.latencies)
            whole.data_packets += part.data_packets
            whole.retransmitted_packets += part.retransmitted_packets
        return whole
