# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Why tests of rdma-core do not run on our device: the suite's own words, and what they mean.

A test that skips for another reason fails ours: either the device has lost something, or the
reason belongs here.
"""

from __future__ import annotations

import re

SKIPS: dict[str, tuple[str, ...]] = {
    "for the hardware of one vendor": (
        r"Can not run the test over non (MLX5|EFA) device",
        r"Could not open mlx5 context",
        r"Opening mlx5 DevX context is not supported",
        r"Converting timestamp to nanoseconds is not supported",  # of mlx5 alone
    ),
    "asks for what this machine lacks": (
        r"Allocating dmabuf is not supported",
        r"cuda-python",
        r"PCI device must be passed by the user",
        r"There are no huge pages",
        r"FDs file not found",
    ),
    "RDMA-CM between two processes, of which AF_XDP serves one": (r"two processes on one address",),
    "unreliable connections (UC)": (
        r"Create UC QP",
        r"Create QP type 3 is not supported",
    ),
    "not supported: docs/verbs.md": (
        r"Create XRCD is not supported",
        r"Create Raw Packet QP",
        r"Create QP type (4|8) is not supported",  # raw packets
        r"Some object imports are not supported",
        r"ODP is not supported",
        r"Extended CQ is not supported",  # with tag matching
        r"Importing a device is not supported",
        r"DM dmabuf export is not supported",
        r"Failed to create DMA Handle",
    ),
    "for devices with something else": (
        r"Create memory window of type 3 is not supported",
        r"Device does not report CC_DMA_BOUNCE",
    ),
}


def explain(why: str) -> str | None:
    """What a reason of the suite means; None: nobody has said."""
    for meaning, patterns in SKIPS.items():
        if any(re.search(pattern, why) for pattern in patterns):
            return meaning
    return None
