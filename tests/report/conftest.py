# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A whole result folder, written and built once for all tests that only look at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from datapath import report
from tests.report import folders
from tests.report.pages import Page


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three stacks, two losses, two tests, four blocks; one run failed."""
    folder = tmp_path_factory.mktemp("results") / "synthetic-20260102T030405Z"
    return folders.write(folder, repetitions=4, failed=[(3, 2)])


@pytest.fixture(scope="session")
def page(whole: Path) -> Page:
    return Page(report.build(whole).read_text())
