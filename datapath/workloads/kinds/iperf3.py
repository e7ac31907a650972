# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""iperf3 over kernel sockets: the goodput of TCP or UDP, as a baseline."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Literal

import pydantic
from pydantic import Field, model_validator

from datapath.errors import RunFailed
from datapath.lanes.base import Host, Tool
from datapath.metric_kind import MetricKind
from datapath.units import BitRate, Bytes, DurationNs
from datapath.workloads.base import Metric, Outcome, RunContext
from datapath.workloads.programs import (
    CLIENT_ALONE,
    Program,
    Programs,
    WorkloadParams,
    require_device,
)

_PORT = 5201


class Iperf3Params(WorkloadParams):
    """One bulk transfer from each client to its server, at the same time."""

    protocol: Literal["tcp", "udp"] = Field("tcp", description="What carries the data.")
    duration: DurationNs = Field(
        3_000_000_000, ge=1_000_000_000, description="How long to send, whole seconds."
    )
    omit: DurationNs = Field(
        0, description="Time at the start that is not counted (slow start), whole seconds."
    )
    streams: int = Field(1, ge=1, le=128, description="Parallel connections of each client.")
    length: Bytes | None = Field(
        None, ge=16, description="Bytes for each write; UDP: of each datagram. Unset: iperf3's."
    )
    rate: BitRate = Field(0, description="Rate at which each stream sends; 0: as fast as it goes.")
    congestion: str | None = Field(
        None, description="TCP congestion control of the sender's kernel (cubic, reno, dctcp ...)."
    )
    reverse: bool = Field(False, description="The server sends.")
    extra: list[str] = Field(default_factory=list, description=CLIENT_ALONE)

    @model_validator(mode="after")
    def _whole_seconds(self) -> Iperf3Params:
        for name in ("duration", "omit"):
            if getattr(self, name) % 1_000_000_000:
                raise ValueError(f"iperf3 takes {name} in whole seconds")
        if self.congestion and self.protocol == "udp":
            raise ValueError("congestion is for protocol tcp")
        return self


class Iperf3:
    """Metrics: goodput, retransmits (TCP), lost_share (UDP), fairness (of several pairs)."""

    name: ClassVar[str] = "iperf3"
    Params: ClassVar[type[pydantic.BaseModel]] = Iperf3Params
    tools: ClassVar[tuple[Tool, ...]] = (Tool("iperf3"),)
    simulated: ClassVar[bool] = False
    devices: ClassVar[tuple[str, ...]] = ("kernel",)
    samples: ClassVar[tuple[str, ...]] = ()
    metrics: ClassVar[tuple[MetricKind, ...]] = ()
    qp_attributes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, params: pydantic.BaseModel) -> None:
        assert isinstance(params, Iperf3Params)
        self.params = params

    def run(self, ctx: RunContext) -> Outcome:
        require_device(ctx, self.name, self.devices)
        with Programs(ctx, self.tools, self.params.pin) as programs:
            servers = [
                programs.start(
                    server,
                    f"iperf3-server-{i}",
                    ["iperf3", "--server", "--one-off", "--bind", server.endpoint.ipv4],
                )
                for i, (_, server) in enumerate(ctx.network.pairs)
            ]
            for program, (_, server) in zip(servers, ctx.network.pairs, strict=True):
                programs.wait_listening(server, program, _PORT)
            clients = [
                programs.start(client, f"iperf3-client-{i}", self.command(server))
                for i, (client, server) in enumerate(ctx.network.pairs)
            ]
            udp = self.params.protocol == "udp"
            reports = [_report(programs, client, udp) for client in clients]
        return self.outcome(reports)

    def command(self, server: Host) -> list[str]:
        """The client's command line."""
        p = self.params
        words = ["iperf3", "--client", server.endpoint.ipv4, "--json"]
        words += ["--time", str(p.duration // 10**9), "--parallel", str(p.streams)]
        if p.omit:
            words += ["--omit", str(p.omit // 10**9)]
        if p.protocol == "udp":
            words += ["--udp", "--bitrate", str(p.rate)]
        elif p.rate:
            words += ["--bitrate", str(p.rate)]
        if p.length is not None:
            words += ["--length", str(p.length)]
        if p.congestion:
            words += ["--congestion", p.congestion]
        if p.reverse:
            words.append("--reverse")
        return words + p.extra

    def outcome(self, reports: list[dict[str, Any]]) -> Outcome:
        """From the `end` objects of the clients' reports; RunFailed when one lacks a total."""
        try:
            return self._outcome(reports)
        except KeyError as error:
            raise RunFailed(
                f"iperf3's report has no {error}", hint="see iperf3-client-*.out among the logs"
            ) from None

    def _outcome(self, reports: list[dict[str, Any]]) -> Outcome:
        goodputs = [float(end["sum_received"]["bits_per_second"]) for end in reports]
        result = Outcome(metrics=[Metric("goodput", sum(goodputs), "bit/s")])
        if self.params.protocol == "tcp":
            retransmits = sum(end["sum_sent"].get("retransmits", 0) for end in reports)
            result.metrics.append(Metric("retransmits", float(retransmits), "1"))
            senders = [stream["sender"] for end in reports for stream in end["streams"]]
            # With `reverse` the client's report has 0 for the RTT, which the other host measures.
            rtts = [str(sender["mean_rtt"]) for sender in senders if sender.get("mean_rtt")]
            if rtts:
                result.notes["rtt_us"] = ", ".join(rtts)
            result.notes["congestion"] = reports[0].get("sender_tcp_congestion", "")
        else:
            share = self._lost_share(reports)
            result.metrics.append(Metric("lost_share", share, "1"))
        if len(goodputs) > 1:
            from datapath.stats import jain

            result.metrics.append(Metric("fairness", jain(goodputs), "1"))
            result.notes["goodput_each"] = ", ".join(f"{g / 1e9:.3f} Gbit/s" for g in goodputs)
        return result

    def _lost_share(self, reports: list[dict[str, Any]]) -> float:
        """UDP: the share of the datagrams that were lost.

        With `omit` iperf3 counts the losses of the omitted time, too, but not its datagrams;
        bytes are of the time behind it alone.
        """
        if self.params.omit:
            sent = sum(end["sum_sent"]["bytes"] for end in reports)
            lost = sent - sum(end["sum_received"]["bytes"] for end in reports)
        else:
            sent = sum(end["sum"]["packets"] for end in reports)
            lost = sum(end["sum"]["lost_packets"] for end in reports)
        return max(lost / sent, 0.0) if sent else 0.0


def _report(programs: Programs, client: Program, udp: bool) -> dict[str, Any]:
    """The `end` object; RunFailed with iperf3's own error text."""
    try:
        text = programs.finish(client)
    except RunFailed as failure:
        output = client.output()
        if error := _parse(output).get("error"):
            raise RunFailed(f"{client.name}: {error}", hint=f"its log is {client.out}") from None
        if udp and not output and client.process.returncode is None:
            hint = "iperf3 sends the first datagram of a UDP test once: perhaps the path lost it"
            raise RunFailed(str(failure), hint=f"{hint}; {failure.hint}") from None
        raise
    return read_report(text, client.name)


def read_report(text: str, name: str) -> dict[str, Any]:
    """The `end` object of what the client `name` printed; RunFailed when it has no totals."""
    report = _parse(text)
    end: dict[str, Any] = report.get("end", {})
    if "error" in report or not ("sum_received" in end or "sum" in end):
        reason = report.get("error", "its report has no totals")
        raise RunFailed(f"{name}: {reason}", hint=f"see {name}.out among the run's logs")
    if "sum_received" not in end:
        end["sum_received"] = _udp_received(end)
    return end


def _udp_received(end: dict[str, Any]) -> dict[str, float]:
    """iperf3 before 3.12 gives one UDP total, the sender's rate with the receiver's losses."""
    total = end["sum"]
    arrived = 1 - total["lost_packets"] / total["packets"] if total["packets"] else 0.0
    return {"bits_per_second": total["bits_per_second"] * arrived}


def _parse(text: str) -> dict[str, Any]:
    try:
        report = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return report if isinstance(report, dict) else {}
