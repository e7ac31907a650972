# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""dpctl, called often: see server.py."""

from __future__ import annotations

import pytest

from tests.cli.server import Dpctl, shared


@pytest.fixture
def quick_dpctl() -> Dpctl:
    """dpctl(*arguments): a command line in a process of its own, without Python's start."""
    return shared()
