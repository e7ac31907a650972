# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How long packets may be on a device of some MTU."""

from __future__ import annotations

import pytest

from datapath.native import lib
from datapath.verbs import sizes

pytestmark = pytest.mark.compute


@pytest.mark.parametrize(
    ("netdev_mtu", "path_mtu", "segment"),
    [
        # the smallest that IPv6 allows, Ethernet's, just below and at 4096, jumbo, loopback
        (1280, 1024, 1152),
        (1500, 1024, 1408),
        (4199, 2048, 4096),
        (4200, 4096, 4096),
        (9000, 4096, 8896),
        (65521, 4096, 8960),
    ],
)
def test_what_a_device_carries(netdev_mtu: int, path_mtu: int, segment: int) -> None:
    assert sizes.path_mtu(netdev_mtu, 4096) == path_mtu
    assert sizes.segment(netdev_mtu, path_mtu) == segment
    assert segment >= path_mtu
    assert segment % lib.DP_CACHE_LINE == 0


def test_what_is_asked_for_is_had_as_far_as_it_fits() -> None:
    assert sizes.path_mtu(9000, 1024) == 1024
    assert sizes.segment(9000, 1024) == 1024
    assert sizes.segment(9000, 4096, asked=5001) == 5000
    assert sizes.segment(9000, 4096, asked=8960) == 8896
    assert sizes.segment(9000, 4096, afxdp=True) == lib.DP_TWO_CHUNKS_SEGMENT
    assert sizes.segment(9000, 4096, asked=5000, room=sizes.telemetry_room()) == 5132
    assert sizes.segment(1500, 1024, room=sizes.telemetry_room()) == 1408


def test_an_mtu_that_carries_no_path_mtu() -> None:
    assert lib.dp_path_mtu_of_netdev(lib.DP_ROCE_HEADERS_MAX + 255) == 0
    assert lib.dp_path_mtu_of_netdev(lib.DP_ROCE_HEADERS_MAX + 256) == 256
    assert lib.dp_path_mtu_of_netdev(60) == 0
