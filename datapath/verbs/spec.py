# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The `transport` section of an experiment: which verbs device the hosts get.

`Transport.device_options()` is what `DATAPATH_DEVICES` calls these settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from datapath.units import Bytes, DurationNs
from datapath.verbs.device_keys import DEVICE_KEYS

QP_ATTRIBUTES = ("retry_count", "ack_timeout", "rnr_retry")
"""Keys of `transport` that are attributes of each QP: retry_cnt, timeout, rnr_retry of verbs."""
TCP_DEVICES = ("kernel", "siw")
"""Devices that the kernel's TCP carries."""

QP_ATTRIBUTE_DEVICES = ("dp", "rxe")
"""Devices whose QPs have them; iWARP (siw) and the kernel's sockets leave recovery to TCP."""


class TransportOptions(BaseModel):
    """Settings of the RC engine that rarely need one."""

    model_config = ConfigDict(extra="forbid")

    min_rto: DurationNs | None = Field(
        None,
        ge=1_000,
        description=DEVICE_KEYS["min_rto_us"].text,
    )
    cnp: DurationNs | None = Field(
        None,
        ge=1_000,
        description=DEVICE_KEYS["cnp_us"].text,
    )
    window: (
        Literal[64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072] | None
    ) = Field(None, description=DEVICE_KEYS["window"].text)
    segment: Bytes | None = Field(
        None,
        ge=DEVICE_KEYS["segment"].low,
        le=DEVICE_KEYS["segment"].high,
        multiple_of=DEVICE_KEYS["segment"].multiple,
        description=DEVICE_KEYS["segment"].text,
    )
    paths: int = Field(
        1,
        ge=DEVICE_KEYS["paths"].low,
        le=DEVICE_KEYS["paths"].high,
        description=DEVICE_KEYS["paths"].text,
    )
    bundle: bool = Field(
        True,
        description=DEVICE_KEYS["bundle"].text + " The simulator has none.",
    )
    telemetry: bool = Field(
        False,
        description=DEVICE_KEYS["telemetry"].text,
    )
    xdp_mode: Literal["auto", "copy", "zerocopy"] = Field(
        "auto",
        description="Port afxdp. auto: zero-copy where the driver has it, else copy mode.",
    )


class Transport(BaseModel):
    """The transport of the traffic: our RC engine, a kernel device, or the kernel's sockets."""

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
        description=DEVICE_KEYS["mode"].text,
    )
    path_mtu: Literal[256, 512, 1024, 2048, 4096] = Field(
        4096, description=DEVICE_KEYS["path_mtu"].text
    )
    ecn: bool = Field(False, description=DEVICE_KEYS["ecn"].text)
    retry_count: int | None = Field(
        None,
        ge=0,
        le=7,
        description="retry_cnt of the QPs: time-outs and sequence errors in a row before a QP "
        "fails with RETRY_EXC. Unset: the program's, 7 in the workloads of traffic tables.",
    )
    ack_timeout: int | None = Field(
        None,
        ge=0,
        le=31,
        description="timeout of the QPs, as the code that InfiniBand has: 4.096us * 2^ack_timeout; "
        "0: wait for ever. Unset: the program's, 14 (67ms) in the workloads of traffic tables.",
    )
    rnr_retry: int | None = Field(
        None,
        ge=0,
        le=7,
        description="rnr_retry of the QPs: how often in a row the receiver may have no receive "
        "posted before a QP fails; 7: any number of times. Unset: the program's, 7 in the "
        "workloads of traffic tables.",
    )
    options: TransportOptions = Field(default_factory=lambda: TransportOptions())

    def qp_attributes(self) -> Mapping[str, int]:
        """Attributes of QPs that the file sets, by their keys; a workload passes them on."""
        given = {name: getattr(self, name) for name in QP_ATTRIBUTES}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def reads_dates(self) -> bool:
        """Whether its port can hold dated frames until their date; the UDP port sees no dates."""
        return self.uses_afxdp

    @property
    def uses_afxdp(self) -> bool:
        """Whether packets pass the kernel by, so that captures on the host do not have them."""
        return self.device == "dp" and self.port == "afxdp"

    def port_spec(self, netdev: str, ipv4: str, *, dated: bool = False) -> str:
        """The port of a host with this device and address, as `DATAPATH_DEVICES` has it.

        dated: frames come with the time at which an emulated link let them go.
        """
        if self.port == "udp":
            return f"udp:{ipv4}"
        mode = self.options.xdp_mode
        options = [f"afxdp:{netdev}", f"mode={mode}" if mode != "auto" else ""]
        return ",".join(filter(None, [*options, "dated=1" if dated else ""]))

    def device_options(self) -> dict[str, str]:
        """Keys and values for `DATAPATH_DEVICES`; only what differs from the front's defaults."""
        options = {"mode": self.mode, "path_mtu": str(self.path_mtu), "ecn": str(int(self.ecn))}
        if self.options.min_rto is not None:
            options["min_rto_us"] = str(max(1, round(self.options.min_rto / 1000)))
        if self.options.cnp is not None:
            options["cnp_us"] = str(max(1, round(self.options.cnp / 1000)))
        if self.options.segment is not None:
            options["segment"] = str(self.options.segment)
        if self.options.paths > 1:
            options["paths"] = str(self.options.paths)
        if not self.options.bundle:
            options["bundle"] = "0"
        if self.options.telemetry:
            options["telemetry"] = "1"
        if self.options.window is not None:
            options["window"] = str(self.options.window)
        return options
