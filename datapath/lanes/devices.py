# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The network devices of a namespace, for the manifest of a run."""

from __future__ import annotations

import json

from datapath.lanes.namespace import Namespace


def describe_devices(namespace: Namespace) -> dict[str, object]:
    """Kind, MTU, qdisc, XDP mode and offloads of each device but lo and management."""
    links = json.loads(namespace.check_output(["ip", "-j", "-d", "link", "show"]))
    devices: dict[str, object] = {}
    for link in links:
        name = link["ifname"]
        if name == "lo" or name.startswith("mgmt"):
            continue
        xdp = link.get("xdp", {}).get("mode", 0)
        devices[name] = {
            "kind": link.get("linkinfo", {}).get("info_kind", ""),
            "mtu": link["mtu"],
            "qdisc": link.get("qdisc", ""),
            "xdp": {0: "none", 1: "native", 2: "generic"}.get(xdp, f"mode {xdp}"),
            "offloads": _offloads(namespace, name),
        }
    return devices


_SHOWN_OFFLOADS = {
    "tx-checksumming": "tx_checksum",
    "tcp-segmentation-offload": "tso",
    "generic-segmentation-offload": "gso",
    "generic-receive-offload": "gro",
    "tx-udp-segmentation": "udp_segmentation",
}


def _offloads(namespace: Namespace, device: str) -> dict[str, bool]:
    text = namespace.check_output(["ethtool", "-k", device])
    values = dict(line.strip().split(": ", 1) for line in text.splitlines() if ": " in line)
    return {
        short: values[name].startswith("on")
        for name, short in _SHOWN_OFFLOADS.items()
        if name in values
    }
