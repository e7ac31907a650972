# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""perftest (ib_write_bw and its family) on a verbs device: goodput or latency.

The programs run unmodified.  They exchange queue pair numbers and keys over
TCP on the management network, so that an impaired path spoils the transfer
that is measured and not the handshake before it.  With RDMA-CM, which siw
needs, they connect over the network under test.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import ClassVar, Literal

import pydantic
from pydantic import Field, model_validator

from datapath.errors import RunFailed
from datapath.lanes.base import Host, Tool
from datapath.metric_kind import MetricKind
from datapath.units import Bytes, DurationNs
from datapath.workloads.base import Metric, Outcome, RunContext
from datapath.workloads.programs import (
    Program,
    Programs,
    WorkloadParams,
    latency_metrics,
    require_device,
)

_PORT = 18515
_DEVICE_NAMES: Mapping[str, str] = {"dp": "dp0", "rxe": "rxe0", "siw": "siw0"}
_CM_ONLY = ("siw",)  # iWARP has no connection without RDMA-CM
_MIB = 2**20
_BIT_RATES: Mapping[str, float] = {"MB/sec": 8 * _MIB, "MiB/sec": 8 * _MIB, "Gb/sec": 1e9}
"""Units of perftest's bandwidth, in bit/s.  2^20 bytes are MB up to version 4.5, MiB later."""
_ATOMIC_SIZE = 8
_DEFAULT_ITERATIONS = 1000
_DEFAULT_TX_DEPTH = 128
_DEFAULT_MODERATION = 100
"""perftest asks for one completion of so many messages, or of its transmit depth if less."""
_BW_COLUMN = "BW average"
_BW_STEP = 0.01  # of its unit
_ITERATIONS_COLUMN = "#iterations"
_LATENCY_COLUMN = "t_typical[usec]"
_COLUMN = re.compile(r"#\S+|(?:\S+ )?\S+\[[^\]]*\]")
"""A heading: "#bytes", "t_min[usec]", "BW average[MB/sec]"."""
_SAMPLES_HEADER = "#, usec"
_UNCALIBRATED = "Correlation coefficient"
"""perftest measures its clock when it starts; on a busy machine that fails, and every time it
prints is infinite, every rate zero."""

_UNCONNECTED = "Failed to connect RDMA CM events"
"""How perftest's client over siw ends once in a while, crashing; nothing has been measured yet."""

_WAITS = "Waiting for client"
"""perftest's server prints this when it listens, where no TCP socket tells."""

_ATTEMPTS = 3

Test = Literal[
    "write_bw",
    "read_bw",
    "send_bw",
    "atomic_bw",
    "write_lat",
    "read_lat",
    "send_lat",
    "atomic_lat",
]


class PerftestParams(WorkloadParams):
    """One perftest program between each client and its server."""

    test: Test = Field(
        description="Operation, and what is measured: bandwidth or latency, which is half a round "
        "trip for write and send, and a whole one for read and atomic."
    )
    size: Bytes | None = Field(
        None, ge=1, le=2**30, description="Bytes of each message; unset: perftest's. Atomics: 8."
    )
    iterations: int | None = Field(
        None, ge=5, le=10**8, description="Messages of each QP (default 1000)."
    )
    duration: DurationNs | None = Field(
        None,
        ge=1_000_000_000,
        description="Bandwidth only, in place of iterations: whole seconds; perftest leaves out "
        "a quarter at either end.",
    )
    qps: int = Field(1, ge=1, le=16384, description="Queue pairs; bandwidth only.")
    tx_depth: int | None = Field(
        None, ge=1, le=16384, description="Messages outstanding on each QP; bandwidth only."
    )
    rx_depth: int | None = Field(
        None, ge=1, le=16384, description="Receives posted on each QP; send tests only."
    )
    outstanding: int | None = Field(
        None, ge=1, le=255, description="Reads or atomics in flight on each QP."
    )
    post_list: int | None = Field(
        None, ge=1, le=1024, description="Work requests handed over together; bandwidth only."
    )
    inline: Bytes | None = Field(
        None, le=4096, description="Largest message sent inline; write and send tests only."
    )
    bidirectional: bool = Field(False, description="Both ends send; bandwidth only.")
    use_event: bool = Field(
        False, description="Sleep until a completion instead of polling; not in write tests."
    )
    gid_index: int | None = Field(
        None, ge=0, le=255, description="Index of the GID that names each end; unset: perftest's."
    )
    qp_type: Literal["rc", "ud"] = Field(
        "rc", description="Reliable connections, or datagrams, which only send tests have."
    )
    shared_receives: bool = Field(False, description="A shared receive queue; send tests only.")
    rdma_cm: bool = Field(
        False,
        description="Connect by RDMA-CM, over the network under test; it sets the QPs' time-out. "
        "siw always does.",
    )
    all_sizes: bool = Field(
        False,
        description="Every size from 2 bytes to 8 MiB (perftest's --all) in place of one: goodput "
        "and message_rate are the largest, latency_p50 the smallest.",
    )

    @property
    def operation(self) -> str:
        return self.test.partition("_")[0]

    @property
    def is_bandwidth(self) -> bool:
        return self.test.endswith("_bw")

    def connects_by_cm(self, device: str) -> bool:
        return self.rdma_cm or device in _CM_ONLY

    @model_validator(mode="after")
    def _fits_the_test(self) -> PerftestParams:
        bandwidth_only = ("duration", "tx_depth", "post_list", "bidirectional")
        wrong = [] if self.is_bandwidth else [n for n in bandwidth_only if getattr(self, n)]
        if not self.is_bandwidth and self.qps > 1:
            wrong.append("qps")
        if self.operation != "send" and self.rx_depth:
            wrong.append("rx_depth")
        if self.operation not in ("read", "atomic") and self.outstanding:
            wrong.append("outstanding")
        if self.operation not in ("write", "send") and self.inline is not None:
            wrong.append("inline")
        if self.operation == "write" and self.use_event:
            wrong.append("use_event")
        if self.operation != "send":
            wrong += [name for name in ("shared_receives",) if getattr(self, name)]
            wrong += ["datagrams"] if self.qp_type == "ud" else []
        if wrong:
            raise ValueError(f"ib_{self.test} has no {' and no '.join(wrong)}")
        if self.operation == "atomic" and self.size not in (None, _ATOMIC_SIZE):
            raise ValueError(f"atomics are {_ATOMIC_SIZE} bytes, not {self.size}")
        if self.all_sizes and (self.size is not None or self.duration is not None):
            raise ValueError("all_sizes goes without size and duration")
        if self.all_sizes and self.operation == "atomic":
            raise ValueError(f"atomics are {_ATOMIC_SIZE} bytes, there are no other sizes")
        if self.duration is not None and self.iterations is not None:
            raise ValueError("give iterations or duration, not both")
        if self.duration is not None and self.duration % 1_000_000_000:
            raise ValueError("perftest takes duration in whole seconds")
        return self

    @property
    def moderation(self) -> int | None:
        """Messages of a QP for each completion (--cq-mod); None: perftest's choice.

        perftest counts each completion as that many messages, also the last one of a QP, which
        may stand for fewer.  So when they do not divide the iterations it counts too many, and
        polls no more while slower QPs still wait for completions: it hangs.
        With post_list, perftest refuses iterations that are no multiple of that.
        """
        count = self.iterations or _DEFAULT_ITERATIONS
        most = min(_DEFAULT_MODERATION, self.tx_depth or _DEFAULT_TX_DEPTH, count)
        if self.qps == 1 or self.duration is not None or self.post_list or not count % most:
            return None
        return max(part for part in range(1, most) if not count % part)

    def command(self, device: str, *, ack_timeout: int | None = None) -> list[str]:
        """Command line of the server; the client's has the server's address behind it.

        ack_timeout: of the QPs, the code of InfiniBand; None: perftest's.
        """
        words = [f"ib_{self.test}", "--ib-dev", _DEVICE_NAMES[device], "--CPU-freq"]
        words += ["--port", str(_PORT)]
        words += ["--rdma_cm"] if self.connects_by_cm(device) else []
        if self.size is not None and self.operation != "atomic":
            words += ["--size", str(self.size)]
        if self.duration is not None:
            words += ["--duration", str(self.duration // 10**9)]
        else:
            words += ["--iters", str(self.iterations or _DEFAULT_ITERATIONS)]
        if self.is_bandwidth:
            # Finding a peak takes time quadratic in the iterations, and is no result of ours.
            words += ["--qp", str(self.qps), "--noPeak"]
        elif not self.all_sizes:
            words.append("--report-unsorted")
        for option, value in (
            ("--tx-depth", self.tx_depth),
            ("--rx-depth", self.rx_depth),
            ("--outs", self.outstanding),
            ("--post_list", self.post_list),
            ("--cq-mod", self.moderation),
            ("--inline_size", self.inline),
            ("--gid-index", self.gid_index),
            ("--qp-timeout", ack_timeout),
        ):
            if value is not None:
                words += [option, str(value)]
        words += ["--bidirectional"] if self.bidirectional else []
        words += ["--events"] if self.use_event else []
        words += ["--connection", "UD"] if self.qp_type == "ud" else []
        words += ["--use-srq"] if self.shared_receives else []
        words += ["--all"] if self.all_sizes else []
        return words + self.extra


class _NotConnected(RunFailed):
    """No client has begun to measure."""


class Perftest:
    """Metrics: goodput and message_rate (all pairs), or latency_* with samples of each exchange."""

    name: ClassVar[str] = "perftest"
    Params: ClassVar[type[pydantic.BaseModel]] = PerftestParams
    tools: ClassVar[tuple[Tool, ...]] = (Tool("ib_write_bw"),)
    simulated: ClassVar[bool] = False
    devices: ClassVar[tuple[str, ...]] = ("dp", "rxe", "siw")
    samples: ClassVar[tuple[str, ...]] = ("latency",)
    metrics: ClassVar[tuple[MetricKind, ...]] = ()
    qp_attributes: ClassVar[tuple[str, ...]] = ("ack_timeout",)
    """perftest sets the others only when it connects by RDMA-CM, and then not this one."""

    def __init__(self, params: pydantic.BaseModel) -> None:
        assert isinstance(params, PerftestParams)
        self.params = params

    def run(self, ctx: RunContext) -> Outcome:
        require_device(ctx, self.name, self.devices)
        device = ctx.transport.device
        with Programs(ctx, self.tools, self.params.pin, busy=not self.params.use_event) as programs:
            for attempt in range(_ATTEMPTS):
                suffix = f".again-{attempt}" if attempt else ""
                try:
                    clients = self._drive(ctx, programs, device, suffix)
                except _NotConnected:
                    if attempt == _ATTEMPTS - 1:
                        raise
                    continue
                if not any(_UNCALIBRATED in client.errors() for client in clients):
                    return self.outcome([client.output() for client in clients])
        raise RunFailed(
            f"perftest could not measure its own clock, {_ATTEMPTS} times in turn",
            hint="the machine is too busy: see perftest-client-0.err among the run's logs",
        )

    def _drive(
        self, ctx: RunContext, programs: Programs, device: str, suffix: str
    ) -> list[Program]:
        """One run of all servers and clients; the clients, which have ended well."""
        ack_timeout = ctx.transport.ack_timeout
        command = self.params.command(device, ack_timeout=ack_timeout)
        pairs = list(ctx.network.pairs) if self.params.is_bandwidth else [ctx.network.pairs[0]]
        names = [host.name for host in ctx.network.hosts]
        environment = dict(zip(names, ctx.device_env, strict=True))

        def start(host: Host, role: str, words: list[str]) -> Program:
            name = f"perftest-{role}{suffix}"
            return programs.start(host, name, words, environment[host.name])

        servers = [start(server, f"server-{i}", command) for i, (_, server) in enumerate(pairs)]
        for program, (_, server) in zip(servers, pairs, strict=True):
            if self.params.rdma_cm and device not in _CM_ONLY:
                programs.wait_saying(program, _WAITS)
            else:
                programs.wait_listening(server, program, _PORT)
        clients = [
            start(client, f"client-{i}", [*command, self._address(server, device)])
            for i, (client, server) in enumerate(pairs)
        ]
        try:
            for client, listener in zip(clients, servers, strict=True):
                programs.finish(client, server=listener)
                programs.finish(listener)
        except RunFailed as error:
            said = [client.errors() + client.output() for client in clients]
            # Where the connection manager is ours, a failure is one of ours.
            ours = device == "dp" and self.params.rdma_cm
            if ours or not any(_UNCONNECTED in text for text in said):
                raise
            programs.end([*clients, *servers])
            raise _NotConnected(str(error), hint=error.hint) from None
        return clients

    def _address(self, server: Host, device: str) -> str:
        """Where the client finds its server: RDMA-CM names the device by its address."""
        endpoint = server.endpoint
        return endpoint.ipv4 if self.params.connects_by_cm(device) else endpoint.mgmt_ipv4

    def outcome(self, outputs: list[str]) -> Outcome:
        """From the clients' standard outputs; RunFailed when one has no result."""
        if self.params.all_sizes:
            return self._of_all_sizes(outputs)
        if not self.params.is_bandwidth:
            samples = parse_samples(outputs[0])
            return Outcome(latency_metrics(samples), {"latency_ns": samples})
        results = [parse_bandwidth(output) for output in outputs]
        if not any(map(_counted, outputs)):
            raise RunFailed(
                "perftest counted no message: none was complete within the time that it measures, "
                "the middle half of duration",
                hint="raise workload.duration, or lower workload.size, qps or tx_depth",
            )
        goodputs = [goodput for goodput, _ in results]
        metrics = [
            Metric("goodput", sum(goodputs), "bit/s"),
            Metric("message_rate", sum(rate for _, rate in results), "1/s"),
        ]
        if len(results) == 1:
            return Outcome(metrics)
        from datapath.stats import jain

        metrics.append(Metric("fairness", jain(goodputs), "1"))
        each = ", ".join(f"{goodput / 1e9:.3f} Gbit/s" for goodput in goodputs)
        return Outcome(metrics, notes={"goodput_each": each})

    def _of_all_sizes(self, outputs: list[str]) -> Outcome:
        tables = [parse_table(output) for output in outputs]
        if not self.params.is_bandwidth:
            typical = min(row[_LATENCY_COLUMN] for row in tables[0])
            return Outcome([Metric("latency_p50", typical * 1e3, "ns")])
        goodput = rate = 0.0
        for table in tables:
            [unit] = (u for u in _BIT_RATES if f"{_BW_COLUMN}[{u}]" in table[0])
            goodput += max(row[f"{_BW_COLUMN}[{unit}]"] for row in table) * _BIT_RATES[unit]
            rate += max(row["MsgRate[Mpps]"] for row in table) * 1e6
        return Outcome([Metric("goodput", goodput, "bit/s"), Metric("message_rate", rate, "1/s")])


def parse_bandwidth(output: str) -> tuple[float, float]:
    """(bit/s, messages/s) from the result line of a bandwidth test.

    perftest prints the message rate with six decimals of a million, the bandwidth with two
    of its unit.  Both are taken from the finer one, which for small messages is the rate.
    """
    row, unit = _bandwidth_row(output)
    bits, scale = 8 * row["#bytes"], _BIT_RATES[unit]
    if bits < _BW_STEP * scale:
        rate = row["MsgRate[Mpps]"] * 1e6
        return bits * rate, rate
    goodput = row[f"{_BW_COLUMN}[{unit}]"] * scale
    return goodput, goodput / bits


def _counted(output: str) -> float:
    """Messages that were complete within the time that perftest measures."""
    row, _unit = _bandwidth_row(output)
    return row[_ITERATIONS_COLUMN]


def _bandwidth_row(output: str) -> tuple[dict[str, float], str]:
    """The only line of the table by the names of its columns, and the unit of the bandwidth."""
    rows = parse_table(output)
    if len(rows) > 1:
        raise RunFailed(
            f"perftest printed {len(rows)} results, and a run has one",
            hint="set all_sizes in place of perftest's own --all",
        )
    try:
        [row] = rows
        [unit] = (u for u in _BIT_RATES if f"{_BW_COLUMN}[{u}]" in row)
    except ValueError:
        raise _no_result(output) from None
    if not {"#bytes", "MsgRate[Mpps]", _ITERATIONS_COLUMN} <= row.keys():
        raise _no_result(output)
    return row, unit


def parse_table(output: str) -> list[dict[str, float]]:
    """The lines of the table of results by the names of its columns; RunFailed without any."""
    lines = iter(output.splitlines())
    header = next((line for line in lines if line.strip().startswith("#bytes")), "")
    columns = _COLUMN.findall(header)
    table = itertools.takewhile(lambda line: line.strip(" -"), lines)
    try:
        rows = [
            dict(zip(columns, map(float, line.split()), strict=True))
            for line in table
            if line.strip()[0].isdigit()
        ]
    except ValueError:
        raise _no_result(output) from None
    if not rows:
        raise _no_result(output)
    return rows


def parse_samples(output: str) -> list[float]:
    """Every latency that --report-unsorted printed, in nanoseconds, in order.

    Half round trips for write and send, whole ones for read and atomics, as
    perftest counts them.
    """
    lines = iter(output.splitlines())
    if not any(line.strip() == _SAMPLES_HEADER for line in lines):
        raise _no_result(output)
    samples = []
    for line in lines:
        _number, comma, value = line.partition(", ")
        if not comma:
            break
        try:
            samples.append(float(value) * 1e3)
        except ValueError:
            raise _no_result(output) from None
    if not samples:
        raise _no_result(output)
    return samples


def _no_result(output: str) -> RunFailed:
    lines = [line.strip() for line in output.splitlines() if line.strip(" -")]
    return RunFailed(
        f"perftest printed no result; its last line: {lines[-1] if lines else '(nothing)'}",
        hint="see perftest-client-0.out and .err among the run's logs",
    )
