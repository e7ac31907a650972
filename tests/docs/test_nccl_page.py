# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""docs/nccl.md names all cases of the check, in their order."""

from __future__ import annotations

import re

from datapath.collectives.nccl.check import cases_named
from datapath.native.paths import ROOT


def test_all_cases_are_on_the_page() -> None:
    page = (ROOT / "docs" / "nccl.md").read_text()
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", page, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert [name for name in named if name.islower()] == [case.name for case in cases_named([])]
