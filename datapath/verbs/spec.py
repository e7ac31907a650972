# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The `transport` section of an experiment: which verbs device the hosts get.

`Transport.device_options()` is what `DATAPATH_DEVICES` calls these settings.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from datapath.units import Bytes, DurationNs


class TransportOptions(BaseModel):
    """Settings of the RC engine that rarely need one."""

    model_config = ConfigDict(extra="forbid")

    min_rto: DurationNs | None = Field(
        None,
        ge=1_000,
        description="Lowest retransmission time-out (RFC 6298); unset: the engine's.",
    )
    window: Literal[64, 128, 256, 512, 1024, 2048] | None = Field(
        None, description="Most packets in flight per QP; unset: the engine's."
    )
    segment: Bytes | None = Field(
        None,
        ge=256,
        le=8960,
        multiple_of=4,
        description="Payload of a full packet of the extended protocol, where the path carries "
        "it; unset: what suits the port.",
    )
    paths: int = Field(
        1,
        ge=1,
        le=64,
        description="UDP source ports over which the extended protocol spreads the packets of a "
        "QP; more than one needs port afxdp.",
    )
    telemetry: bool = Field(
        False,
        description="Room in requests of the extended protocol for what switches know (HPCC).",
    )
    xdp_mode: Literal["auto", "copy", "zerocopy"] = Field(
        "auto",
        description="Port afxdp. auto: zero-copy where the driver has it, else copy mode.",
    )


class Transport(BaseModel):
    """What carries the traffic: our RC engine, or the kernel's sockets."""

    model_config = ConfigDict(extra="forbid")

    device: Literal["dp", "kernel", "rxe", "siw"] = Field(
        "dp",
        description="dp: our user-space RoCEv2 device. kernel: plain TCP and UDP sockets, for "
        "the workloads iperf3, sockperf and ucx. rxe, siw: kernel RDMA, in the vm lane.",
    )
    port: Literal["afxdp", "udp"] = Field(
        "afxdp",
        description="How dp reaches the wire: AF_XDP sockets on the host's device, or an "
        "ordinary UDP socket with segmentation offload (needs no privilege).",
    )
    mode: Literal["auto", "standard"] = Field(
        "auto",
        description="auto: offer the extended protocol (selective repeat) to the peer, use "
        "standard RoCEv2 if it does not answer. standard: never offer it.",
    )
    path_mtu: Literal[256, 512, 1024, 2048, 4096] = Field(
        4096, description="Largest RoCE path MTU, bytes; lowered to what the device carries."
    )
    ecn: bool = Field(False, description="Send packets as ECN-capable, ECT(0).")
    options: TransportOptions = Field(default_factory=lambda: TransportOptions())

    def port_spec(self, netdev: str, ipv4: str) -> str:
        """The port of a host with this device and address, as `DATAPATH_DEVICES` has it."""
        if self.port == "udp":
            return f"udp:{ipv4}"
        mode = self.options.xdp_mode
        return f"afxdp:{netdev}" + (f",mode={mode}" if mode != "auto" else "")

    def device_options(self) -> dict[str, str]:
        """Keys and values for `DATAPATH_DEVICES`; only what differs from the front's defaults."""
        options = {"mode": self.mode, "path_mtu": str(self.path_mtu), "ecn": str(int(self.ecn))}
        if self.options.min_rto is not None:
            options["min_rto_us"] = str(max(1, round(self.options.min_rto / 1000)))
        if self.options.segment is not None:
            options["segment"] = str(self.options.segment)
        if self.options.paths > 1:
            options["paths"] = str(self.options.paths)
        if self.options.telemetry:
            options["telemetry"] = "1"
        if self.options.window is not None:
            options["window"] = str(self.options.window)
        return options
