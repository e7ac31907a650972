# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""rdma-core's own suite is run when RDMA_CORE names its source, as run.sh does."""

from __future__ import annotations

import os

import pytest

collect_ignore = [] if os.environ.get("RDMA_CORE") else ["test_suite.py"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--loss",
        type=float,
        default=0.0,
        help="of rdma-core's suite: percent of the packets of connections that are lost",
    )
