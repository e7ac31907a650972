# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The progress line of a sweep: count and remaining time are whole at any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from datapath.cli.progress import _bar

LONG = "3 failed · block 12 · stack=RDMA over AF_XDP, path.loss=1%, test=1 MiB bandwidth"


@pytest.mark.parametrize("width", [24, 40, 72, 80, 140])
def test_count_and_time_are_never_cut(width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    progress = _bar(console)
    progress.add_task(LONG, total=1200, completed=345)
    console.print(progress.get_renderable())
    (line,) = filter(str.strip, out.getvalue().splitlines())
    assert "345/1200" in line
    assert "-:--:--" in line  # nothing has finished yet, so no time is known
    assert len(line.rstrip()) <= width
    assert "3 f" in line
