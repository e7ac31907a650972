# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What docs/hunt.md says is true: its tables are the dimensions and the symptoms."""

from __future__ import annotations

import re
from pathlib import Path

from datapath.hunt.limits import SYMPTOMS
from datapath.hunt.space import SPACE

PAGE = Path(__file__).parents[2] / "docs" / "hunt.md"


def table(heading: str) -> list[list[str]]:
    """Cells of the rows of the first table below a heading."""
    section = PAGE.read_text().partition(f"## {heading}\n")[2]
    found = re.search(r"^\|---.*\n((?:\|.*\n)*)", section, re.MULTILINE)
    assert found
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in found[1].splitlines()]


def test_dimensions() -> None:
    assert table("What varies") == [
        [
            f"`{dimension.name}`",
            "" if dimension.default is None else dimension.text(dimension.default),
            dimension.meaning,
        ]
        for dimension in SPACE
    ]


def test_symptoms() -> None:
    rows = [[name, meaning] for name, meaning, _ in table("What counts as bad")]
    assert rows == [[f"`{name}`", meaning] for name, meaning in SYMPTOMS.items()]
