# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What all tests share."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# The machine is shared with the programs under test: how long an example
# takes says nothing.
settings.register_profile("datapath", deadline=None, print_blob=True)
settings.load_profile("datapath")


@pytest.fixture
def root() -> None:
    """For tests that make namespaces, links or load BPF programs."""
    if os.geteuid() != 0:
        pytest.skip("needs root: makes network namespaces and loads BPF programs")
