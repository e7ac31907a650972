# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two of our devices in namespaces, with a middle in which packets can be captured."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Topology


@pytest.fixture(scope="session")
def network() -> Iterator[NetnsNetwork]:
    if os.geteuid() != 0:
        pytest.skip("needs root: makes network namespaces and loads BPF programs")
    with NetnsNetwork(Topology()) as network:
        yield network
