# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A cache of their own for these tests, and a way to write an algorithm in a test."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HEADER = """\
import math

from datapath.cc import algorithm, param, state

"""

WriteAlgorithm = Callable[..., str]


@pytest.fixture(autouse=True, scope="package")
def cc_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache folder that all these tests share, in all processes that run them."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cc-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "datapath" / "cc"


@pytest.fixture
def write(tmp_path: Path) -> WriteAlgorithm:
    """Write a file of an algorithm's own; returns its path.

    The text stands below the usual imports (4 lines), so its first line is 5.
    """

    def write(text: str, name: str = "mine.py") -> str:
        path = tmp_path / name
        path.write_text(HEADER + textwrap.dedent(text))
        return str(path)

    return write
