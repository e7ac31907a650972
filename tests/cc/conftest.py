# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A cache for these tests, and a way to write an algorithm in a test."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from datapath.native import paths

HEADER = """\
import math

from datapath.cc import algorithm, param, state

"""

WriteAlgorithm = Callable[..., str]


@pytest.fixture(autouse=True, scope="package")
def _cc_cache() -> Iterator[None]:
    """A folder of the build, so that what these tests compile is there in the next run of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(paths.ROOT / "build" / "tests-cache"))
        yield


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
