# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A rule that several parts follow stands in one file, and the others ask that file."""

from __future__ import annotations

import re

import pytest

from datapath.native import paths

pytestmark = pytest.mark.compute

# What marks the rule's code, in which files it is looked for, and the one that has it.
HOMES = {
    "which name was meant": (r"^\s*(import|from) difflib\b", "**/*.py", "spelling.py"),
    "the nearest rank": (r"\blen\(\w+\) - 1, int\(|\bceil\(share\b", "**/*.py", "quantiles.py"),
    "the kernel's clocks": (r"\bclock_gettime\(", "**/*.[ch]", "posix/clock.h"),
    "random numbers": (r"0x9e3779b97f4a7c15|0x94d049bb133111eb", "**/*.[ch]", "wire/random.h"),
    "numbers from text": (r"\b(strto(u?ll?|d|f)|ato[ilf])\(", "**/*.[ch]", "posix/number.h"),
}


@pytest.mark.parametrize("rule", HOMES)
def test_a_rule_has_one_home(rule: str) -> None:
    mark, files, home = HOMES[rule]
    found = [
        str(path.relative_to(paths.PACKAGE))
        for path in sorted(paths.PACKAGE.glob(files))
        if re.search(mark, path.read_text(), re.MULTILINE | re.IGNORECASE)
    ]
    assert found == [home]
