# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""dpctl, called often: see server.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.server import Dpctl


@pytest.fixture(scope="session")
def quick_dpctl() -> Iterator[Dpctl]:
    """dpctl(*arguments): a command line in a process of its own, without Python's start."""
    server = Dpctl()
    yield server
    server.close()
